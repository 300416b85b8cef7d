// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The ports are below those that Linux takes for outgoing connections (32768 and above): one of these could be taken in
// the time between FreePort and the listening of the process that the port is meant for.
const (
	firstPort = 20000
	lastPort  = 32000
)

var handedOut sync.Map

// FreePort returns a port on which nobody listens on 127.0.0.1, never the same twice.
func FreePort() (int, error) {
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			return 0, err
		}
		if _, taken := handedOut.LoadOrStore(port, true); !taken {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port found between %d and %d", firstPort, lastPort)
}
