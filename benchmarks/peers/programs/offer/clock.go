package offer

import (
	"syscall"
	"time"
	"unsafe"
)

const clockMonotonic = 1

var origin, originNs = readClock()

// readClock gives one moment twice: as Go keeps it, and as the kernel's monotonic clock has it, in ns.
func readClock() (time.Time, int64) {
	var kernel syscall.Timespec
	_, _, failed := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&kernel)), 0)
	if failed != 0 {
		panic("clock_gettime: " + failed.Error())
	}
	return time.Now(), kernel.Nano()
}

// NowNs is the monotonic clock that all processes of this machine share, in ns: Python's time.monotonic_ns().
func NowNs() int64 {
	return originNs + time.Since(origin).Nanoseconds()
}
