package offer

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// Client is what a client of a peer can be told to do, each by a word.
type Client struct {
	First  func()
	Leader func() int
	Probe  func()
	Load   func(Spec)
}

// Run does what the first argument says, with the flags that follow it.
func (client Client) Run() {
	if len(os.Args) < 2 {
		Die(fmt.Errorf("a word is missing: first, leader, probe or load"))
	}
	spec := Flags()
	Die(flag.CommandLine.Parse(os.Args[2:]))
	switch os.Args[1] {
	case "first":
		client.First()
	case "leader":
		fmt.Println(client.Leader())
	case "probe":
		client.Probe()
	case "load":
		client.Load(*spec)
	default:
		Die(fmt.Errorf("%s is none of first, leader, probe and load", os.Args[1]))
	}
}

// Die ends the program if there is an error.
func Die(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(1)
	}
}
