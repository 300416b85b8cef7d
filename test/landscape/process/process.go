// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package process runs child processes that never outlive whoever started them.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// gracePeriod is the time that a process has to end after SIGTERM.
const gracePeriod = 10 * time.Second

// Spec describes a process.
type Spec struct {
	// Name is what the process is called in messages.
	Name string
	// Path is the path of the executable.
	Path string
	// Args are the arguments, without the name of the executable.
	Args []string
	// Env is added to the environment of the calling process.
	Env []string
	// LogFile takes standard output and standard error. It is appended to.
	LogFile string
	// SysProcAttr is optional. The death signal and the process group are always set.
	SysProcAttr *syscall.SysProcAttr
}

// Process is a running or ended child process.
type Process struct {
	name    string
	logFile string
	cmd     *exec.Cmd
	stopped atomic.Bool
	done    chan struct{}
	waitErr error
}

// Start starts the process. It gets a process group of its own, so that Ctrl-C in a terminal does not reach it: it ends
// when Stop is called, or when the calling process ends in whatever way.
func Start(spec Spec) (*Process, error) {
	if err := os.MkdirAll(filepath.Dir(spec.LogFile), 0o755); err != nil {
		return nil, fmt.Errorf("could not create the log directory of %s: %w", spec.Name, err)
	}
	log, err := os.OpenFile(spec.LogFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("could not open the log file of %s: %w", spec.Name, err)
	}
	defer log.Close()

	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Env = append(os.Environ(), spec.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if spec.SysProcAttr != nil {
		*cmd.SysProcAttr = *spec.SysProcAttr
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr.Setpgid = !cmd.SysProcAttr.Setsid

	if err := onParentThread(cmd.Start); err != nil {
		return nil, fmt.Errorf("could not start %s: %w", spec.Name, err)
	}

	p := &Process{name: spec.Name, logFile: spec.LogFile, cmd: cmd, done: make(chan struct{})}
	go func() {
		p.waitErr = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Name returns the name of the process.
func (p *Process) Name() string { return p.name }

// LogFile returns the path of the log file.
func (p *Process) LogFile() string { return p.logFile }

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns nil as long as the process runs, and after it was ended by Stop. Otherwise it says how the process ended,
// also if it ended with exit status 0, and where its log is.
func (p *Process) Err() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	if p.stopped.Load() {
		return nil
	}
	if p.waitErr != nil {
		return fmt.Errorf("%s ended: %w, its log is %s", p.name, p.waitErr, p.logFile)
	}
	return fmt.Errorf("%s ended: exit status 0, its log is %s", p.name, p.logFile)
}

// Stop ends the process with SIGTERM, and with SIGKILL after a grace period or when the context ends before. It returns
// when the process has ended.
func (p *Process) Stop(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	p.stopped.Store(true)

	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("could not end %s: %w", p.name, err)
	}
	grace := time.NewTimer(gracePeriod)
	defer grace.Stop()
	select {
	case <-p.done:
		return nil
	case <-grace.C:
	case <-ctx.Done():
	}

	if err := syscall.Kill(-p.PID(), syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("could not kill %s: %w", p.name, err)
	}
	<-p.done
	return nil
}

// The death signal of a child is sent when the thread that started it ends, not the process. The Go runtime ends idle
// threads as it likes, hence all children are started from one thread that lives as long as the process.
var parentThread = sync.OnceValue(func() chan<- func() {
	calls := make(chan func())
	go func() {
		runtime.LockOSThread()
		for call := range calls {
			call()
		}
	}()
	return calls
})

func onParentThread(call func() error) error {
	result := make(chan error)
	parentThread() <- func() { result <- call() }
	return <-result
}
