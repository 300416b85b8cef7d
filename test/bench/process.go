// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/procfs"
)

// memory is what a process occupies, in bytes.
type memory struct {
	// resident is what it occupies now, peak what it has ever occupied. Of resident, anonymous belongs to this process alone,
	// while the rest is the executable, which all processes share that run it.
	resident, anonymous, peak uint64
}

// container returns the process that runs an executable of the given name. There is one of each.
func container(executable string) (procfs.Proc, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return procfs.Proc{}, err
	}
	for _, process := range all {
		// A process may end at any time: those that cannot be read are none that is looked for.
		stat, err := process.Stat()
		if err != nil || stat.PPID != os.Getpid() {
			continue
		}
		if command, err := process.CmdLine(); err == nil && len(command) > 0 && filepath.Base(command[0]) == executable {
			return process, nil
		}
	}
	return procfs.Proc{}, fmt.Errorf("no process runs %s", executable)
}

func memoryOf(process procfs.Proc) (memory, error) {
	status, err := process.NewStatus()
	if err != nil {
		return memory{}, err
	}
	return memory{resident: status.VmRSS, anonymous: status.RssAnon, peak: status.VmHWM}, nil
}

func (m memory) String() string {
	return fmt.Sprintf("%s, %s", mebibytes(m.resident), mebibytes(m.anonymous))
}

// cpuOf returns for how long a process has been running on a core, in user and kernel mode.
func cpuOf(process procfs.Proc) (time.Duration, error) {
	stat, err := process.Stat()
	if err != nil {
		return 0, err
	}
	return time.Duration(stat.CPUTime() * float64(time.Second)), nil
}
