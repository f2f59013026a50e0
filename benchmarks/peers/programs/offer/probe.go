package offer

import (
	"fmt"
	"time"
)

const pauseBetweenProbes = 2 * time.Millisecond

// Probe appends one at a time for ever, each until it is acknowledged, and prints for each when it was first sent and when
// it was acknowledged, monotonic ns.
func Probe(pauseAfterError time.Duration, try func(number int) error) {
	for number := 0; ; number++ {
		sentNs := NowNs()
		for try(number) != nil {
			time.Sleep(pauseAfterError)
		}
		fmt.Println(sentNs, NowNs())
		time.Sleep(pauseBetweenProbes)
	}
}
