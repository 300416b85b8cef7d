// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package podrunner

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/podrunner/podexec"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/process"
)

const (
	// firstBackoff is the delay before the first restart of a container. It doubles with each further one.
	firstBackoff = time.Second
	maxBackoff   = time.Minute
	// stableAfter is how long a container must have run so that the delay starts anew.
	stableAfter = time.Minute
)

// container is a container of a pod, and the process that stands for it.
type container struct {
	name, image, logFile string
	command              podexec.Command
	// broken is set if there is nothing that could be started.
	broken bool

	lock     sync.Mutex
	state    corev1.ContainerState
	last     corev1.ContainerState
	restarts int32
	// id names the process, empty while there is none.
	id string
}

// containerIDPrefix is what the name of a container runtime is in ids of containers. The process id follows: whoever sees
// the pod can kill a container as a crash would.
const containerIDPrefix = "process://"

// fail records that the container cannot be started at all.
func (c *container) fail(reason string, err error) {
	c.broken = true
	c.state = waiting(reason, err.Error())
}

// status returns the status of the container.
func (c *container) status() corev1.ContainerStatus {
	c.lock.Lock()
	defer c.lock.Unlock()
	state := c.state
	if state == (corev1.ContainerState{}) {
		state = waiting("ContainerCreating", "")
	}
	return corev1.ContainerStatus{
		Name:                 c.name,
		Image:                c.image,
		ImageID:              c.command.Path,
		ContainerID:          c.id,
		State:                state,
		LastTerminationState: c.last,
		RestartCount:         c.restarts,
		Ready:                state.Running != nil,
		Started:              new(state.Running != nil),
	}
}

// run keeps the process running until the context ends, then stops it within the grace period, which is read only then.
// It calls changed after each change of the state, with a message if something went wrong.
func (c *container) run(ctx context.Context, grace *time.Duration, changed func(message string)) {
	backoff := firstBackoff
	for {
		startTime := time.Now()
		child, err := c.startProcess()
		if err == nil {
			c.started(startTime, child.PID())
			changed("")
			select {
			case <-child.Done():
				err = child.Err()
			case <-ctx.Done():
				stopCtx, cancel := context.WithTimeout(context.Background(), *grace)
				_ = child.Stop(stopCtx) // a process that is gone needs no end
				cancel()
				return
			}
		}

		if time.Since(startTime) >= stableAfter {
			backoff = firstBackoff
		}
		c.ended(startTime, err)
		changed(fmt.Sprintf("Container %s is started again in %v: %v", c.name, backoff, err))
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
			return
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

func (c *container) startProcess() (*process.Process, error) {
	variable, err := c.command.EnvVar()
	if err != nil {
		return nil, err
	}
	return process.Start(process.Spec{
		Name:        "container " + c.name,
		Path:        podexec.SelfPath,
		Env:         []string{variable},
		LogFile:     c.logFile,
		SysProcAttr: podexec.SysProcAttr(),
	})
}

func (c *container) started(startTime time.Time, pid int) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(startTime)}}
	c.id = containerIDPrefix + strconv.Itoa(pid)
}

func (c *container) ended(startTime time.Time, err error) {
	exitCode := int32(0)
	if exitErr, ok := errors.AsType[*exec.ExitError](err); ok {
		exitCode = int32(exitErr.ExitCode()) // #nosec G115 -- an exit code fits
	}

	c.lock.Lock()
	defer c.lock.Unlock()
	c.restarts++
	c.id = ""
	c.last = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode:   exitCode,
		Reason:     "Error",
		Message:    err.Error(),
		StartedAt:  metav1.NewTime(startTime),
		FinishedAt: metav1.Now(),
	}}
	c.state = waiting("CrashLoopBackOff", err.Error())
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}
