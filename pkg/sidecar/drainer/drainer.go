// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package drainer carries out the plans of drains: it reads pods and PodDisruptionBudgets, evicts and deletes pods, and removes
// their finalizers. It waits for answers only, and not for long, so that a few goroutines can drain any number of nodes at the
// same time (P7).
package drainer

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/panics"
)

// Drainer empties failed nodes step by step.
type Drainer struct {
	Client kubernetes.Interface

	// positions are where the next step goes on, by the name of a node whose last step did not reach all its pods. Without one, after a
	// restart for example, a step begins with the first pod.
	positions sync.Map
	// deletions are what was deleted by force, by the name of a node.
	deletions sync.Map
}

// position is a place in the list of a node's pods.
type position struct {
	// page is the token of a page, empty for the first, and after is the key of the last pod that was dealt with, there or before.
	page, after string
	// failed is how often in a row the page could not be read.
	failed int
}

// maxFailed is how often a page is asked for that cannot be read. Then the first comes again: nothing would ever be done with its pods
// otherwise.
const maxFailed = 3

// Forget drops what is known of a node that is no longer drained.
func (d *Drainer) Forget(node string) {
	d.positions.Delete(node)
	d.deletions.Delete(node)
}

// Step brings the drain of a node forward. Evictions respect PodDisruptionBudgets; what is still there after the timeout
// is deleted by force. It returns within seconds, whatever the shoot does: what was not reached comes first in the next
// step. An error means that nothing was done, because the pods could not be listed.
func (d *Drainer) Step(ctx context.Context, node *corev1.Node, opts drain.Options, now time.Time) (drain.Progress, error) {
	var at position
	if v, ok := d.positions.LoadAndDelete(node.Name); ok {
		at = v.(position)
	}
	resumed := at != position{}
	page, err := d.page(ctx, node.Name, &at)
	if err != nil {
		if at.failed++; resumed && at.failed < maxFailed {
			d.positions.Store(node.Name, at)
		}
		return drain.Progress{}, err
	}
	at.failed = 0

	deletions, _ := d.deletions.LoadOrStore(node.Name, drain.Deletions{})
	step := &drain.Step{Options: opts, Now: now, Reachable: facts.IsReady(node), Resumed: resumed, Deletions: deletions.(drain.Deletions)}
	timed, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	unfinished := false
	for {
		var pods []drain.Pod
		for i := range page.Items {
			if pod := drain.NewPod(&page.Items[i]); pod.Key() > at.after {
				pods = append(pods, pod)
			}
		}
		reached := d.dealWith(ctx, timed, step, pods)
		if reached > 0 {
			at.after = pods[reached-1].Key()
		}
		if unfinished = reached < len(pods); unfinished || page.Continue == "" {
			break
		}
		at.page = page.Continue
		if unfinished = timed.Err() != nil; unfinished {
			break
		}
		if page, err = d.page(ctx, node.Name, &at); err != nil {
			unfinished = true
			step.Fail(err)
			break
		}
	}
	if unfinished {
		d.positions.Store(node.Name, at)
	}
	progress := step.End(unfinished)
	if progress.Done {
		d.deletions.Delete(node.Name)
	}
	return progress, nil
}

// page returns the page of a node's pods at a place. If its token is too old, the place is on the first page from then on.
func (d *Drainer) page(ctx context.Context, node string, at *position) (*corev1.PodList, error) {
	page, err := listPods(ctx, d.Client, podsOf(node, at.page))
	if apierrors.IsResourceExpired(err) {
		at.page = ""
	}
	if err != nil {
		return nil, fmt.Errorf("failed to list the pods of node %s: %s", node, reasonOf(err))
	}
	return page, nil
}

// dealWith deals with the pods, in their order, until timed is over. It returns how many of the first pods it has dealt with; it may
// have dealt with some behind them.
func (d *Drainer) dealWith(ctx, timed context.Context, step *drain.Step, pods []drain.Pod) int {
	var (
		actions = step.Plan(pods)
		mutex   sync.Mutex
	)
	return forEach(ctx, timed, len(actions), func(ctx context.Context, i int) {
		stays, err := d.deal(ctx, actions[i])
		mutex.Lock()
		defer mutex.Unlock()
		if !stays {
			step.Count(actions[i], err, reasonOf(err))
		}
	})
}

// deal leaves alone what belongs to its node: mirror pods, and those of a DaemonSet that exists and will not replace them
// because they have not ended. It returns whether it is such a pod.
func (d *Drainer) deal(ctx context.Context, action drain.Action) (stays bool, err error) {
	p := action.Pod
	if p.Mirror {
		return true, nil
	}
	err = panics.Catch(ctx, func() (err error) {
		if p.DaemonSet != "" && !p.Finished {
			if stays, err = d.daemonSetExists(ctx, p); stays || err != nil {
				return err
			}
		}
		return (&Executor{d.Client}).execute(ctx, action)
	})
	return stays, err
}

func (d *Drainer) daemonSetExists(ctx context.Context, p drain.Pod) (bool, error) {
	err := once(d.Client.AppsV1().RESTClient().Get()).Namespace(p.Namespace).Resource("daemonsets").Name(p.DaemonSet).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
