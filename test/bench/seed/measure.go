// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controller/worker"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/webhook/machinecontrollermanager"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/webhook/machinedeployment"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
)

const (
	// calm is for how long there must be no call until everything is done. It is longer than anything is retried after.
	calm = 15 * time.Second
	// restPeriod is a multiple of the period of health checks.
	restPeriod = 2 * time.Minute
	// writesPerManager is how often each Deployment of machine-controller-manager is written.
	writesPerManager = 4
)

// bench takes the measures.
type bench struct {
	*seed
	shoots    int
	extension *extension
	// manager is the Deployment of machine-controller-manager without the container.
	manager *appsv1.Deployment
	rows    []row
}

func (b *bench) add(measure, format string, args ...any) {
	b.rows = append(b.rows, row{measure, fmt.Sprintf(format, args...)})
}

// measure takes all measures, in the order of what happens to an extension in a seed.
func measure(ctx context.Context, s *seed, shoots int) ([]row, error) {
	b := &bench{seed: s, shoots: shoots}
	for _, step := range []func(context.Context) error{
		b.populate,
		b.sync,
		b.writeWithoutWebhook,
		b.enable,
		b.restart,
		b.rest,
		b.writeMachineDeployments,
		b.writeManagers,
		b.changeNothing,
		b.changeSomething,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
		select {
		case err := <-s.others.failed:
			return nil, err
		default:
		}
	}
	b.add("watches", "%s", strings.Join(slices.Sorted(maps.Keys(b.audit.watches)), ", "))
	return b.rows, b.addMemory("memory at the end")
}

func (b *bench) populate(ctx context.Context) error {
	landscape.Say("Creating %d shoots", b.shoots)
	var err error
	if b.manager, err = newManagerDeployment(ctx); err != nil {
		return err
	}
	size, err := populate(ctx, b.client, b.shoots, b.manager)
	b.add("a Cluster", "%d KiB, all %d: %d MiB", size>>10, b.shoots, size*b.shoots>>20)
	return err
}

// sync starts the extension, which is not enabled for any shoot.
func (b *bench) sync(ctx context.Context) error {
	landscape.Say("Starting the extension")
	if err := b.start(ctx); err != nil {
		return err
	}
	return b.addMemory("memory after the caches have synced")
}

// start starts the extension and waits until it has looked at everything.
func (b *bench) start(ctx context.Context) error {
	var err error
	if b.extension, err = b.startExtension(ctx); err != nil {
		return err
	}
	return b.audit.quiet(ctx, calm)
}

func (b *bench) addMemory(measure string) error {
	occupied, err := b.extension.memory()
	b.add(measure, "%s", occupied)
	return err
}

func (b *bench) writeWithoutWebhook(ctx context.Context) error {
	landscape.Say("Writing MachineDeployments without the webhook")
	took, err := b.timed(ctx, b.shoots*poolsPerShoot, b.writeMachineDeployment)
	b.addWrites("write of a MachineDeployment, without webhook", took)
	if err != nil {
		return err
	}
	return b.audit.quiet(ctx, calm)
}

// enable enables the extension for all shoots at once.
func (b *bench) enable(ctx context.Context) error {
	landscape.Say("Enabling the extension for all shoots")
	began := time.Now()
	if err := parallel(ctx, b.shoots, func(ctx context.Context, shoot int) error {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(shoot)}}
		if err := b.patch(ctx, namespace, `{"metadata":{"labels":{%q:"true"}}}`, labelEnabled); err != nil {
			return err
		}
		return b.client.Create(ctx, newOwnExtension(namespace.Name, 1))
	}); err != nil {
		return fmt.Errorf("could not enable the extension: %w", err)
	}
	last, err := b.reconciled(ctx)
	if err != nil {
		return err
	}
	if err := b.audit.read(); err != nil {
		return err
	}
	calls := b.audit.calls.since(began)
	shares := calls.of("patch", "machinedeployments")
	b.add("all shares written", "%s", seconds(shares[len(shares)-1].to.Sub(began)))
	b.add("all Extensions reconciled", "%.0f s", last.Sub(began).Seconds())
	b.add("calls for that", "%s", calls)

	landscape.Say("Injecting the container")
	if _, err := b.timed(ctx, b.shoots, b.writeManager); err != nil {
		return err
	}
	if err := b.audit.quiet(ctx, calm); err != nil {
		return err
	}
	if err := b.check(ctx, "1"); err != nil {
		return err
	}
	return b.addMemory("memory after everything is reconciled")
}

// reconciled waits until all Extensions are, and returns when the last one was.
func (b *bench) reconciled(ctx context.Context) (time.Time, error) {
	for began := time.Now(); ; {
		n, last, err := b.others.succeeded(ctx)
		if err != nil || n == b.shoots {
			return last.Time, err
		}
		if time.Since(began) > patience {
			return time.Time{}, fmt.Errorf("only %d of %d Extensions were reconciled within %s", n, b.shoots, patience)
		}
		if err := pause(ctx, time.Second); err != nil {
			return time.Time{}, err
		}
	}
}

// check returns an error unless all shares are as they should be, and the containers injected.
func (b *bench) check(ctx context.Context, share string) error {
	deployments := &machinev1alpha1.MachineDeploymentList{}
	if err := b.client.List(ctx, deployments); err != nil {
		return err
	}
	for i := range deployments.Items {
		if got := deployments.Items[i].Annotations[v1alpha1.AnnotationAutoPreserveFailedMax]; got != share {
			return fmt.Errorf("MachineDeployment %s has share %q, want %q", deployments.Items[i].Name, got, share)
		}
	}
	managers := &appsv1.DeploymentList{}
	if err := b.client.List(ctx, managers); err != nil {
		return err
	}
	for _, manager := range managers.Items {
		if !slices.ContainsFunc(manager.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return c.Name == preservationcontroller.Name }) {
			return fmt.Errorf("machine-controller-manager in %s has not got the container", manager.Namespace)
		}
	}
	return nil
}

// restart starts the extension anew, when everything is as it should be.
func (b *bench) restart(ctx context.Context) error {
	landscape.Say("Starting the extension again")
	if err := b.extension.Stop(ctx); err != nil {
		return err
	}
	if err := b.start(ctx); err != nil {
		return err
	}
	calls := b.audit.calls.since(b.extension.started)
	done := b.extension.ready
	if len(calls) > 0 && calls[len(calls)-1].to.After(done) {
		done = calls[len(calls)-1].to
	}
	b.add("restart, until ready", "%s", seconds(b.extension.ready.Sub(b.extension.started)))
	b.add("restart, until the last call", "%s", seconds(done.Sub(b.extension.started)))
	b.add("calls of a restart", "%s", calls)
	return b.addMemory("memory after a restart")
}

// rest counts the calls when nothing happens.
func (b *bench) rest(ctx context.Context) error {
	landscape.Say("Letting it rest")
	began := time.Now()
	if err := pause(ctx, restPeriod); err != nil {
		return err
	}
	if err := b.audit.read(); err != nil {
		return err
	}
	b.add("calls at rest, in "+restPeriod.String(), "%s", b.audit.calls.since(began))
	b.add("calls of health checks, in "+restPeriod.String(), "%s", b.audit.checks.since(began))
	return nil
}

// changeNothing changes each Worker, but not what follows for the shares.
func (b *bench) changeNothing(ctx context.Context) error {
	landscape.Say("Changing Workers, but no share")
	reconciled, calls, err := b.reconciles(ctx, func(ctx context.Context) error {
		return parallel(ctx, b.shoots, func(ctx context.Context, shoot int) error {
			return b.patchWorker(ctx, shoot, `{"spec":{"sshPublicKey":%q}}`, "YQ==")
		})
	})
	b.add("each Worker changes, but no share", "%d reconciliations, calls: %s", reconciled, calls)
	return err
}

// changeSomething changes the share of each MachineDeployment.
func (b *bench) changeSomething(ctx context.Context) error {
	landscape.Say("Changing all shares")
	reconciled, calls, err := b.reconciles(ctx, func(ctx context.Context) error {
		return parallel(ctx, b.shoots, func(ctx context.Context, shoot int) error {
			extension := &extensionsv1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Name: extensionType, Namespace: namespaceOf(shoot)}}
			return b.patch(ctx, extension, `{"spec":{"providerConfig":%s}}`, ownConfig(2).Raw)
		})
	})
	if err != nil {
		return err
	}
	b.add("each share changes", "%d reconciliations, calls: %s", reconciled, calls)
	return b.check(ctx, "2")
}

// reconciles returns how often the worker controller reconciles after a change, and what calls are made.
func (b *bench) reconciles(ctx context.Context, change func(context.Context) error) (int, calls, error) {
	before, err := b.extension.reconciliations(ctx, worker.ControllerName)
	if err != nil {
		return 0, nil, err
	}
	began := time.Now()
	if err := change(ctx); err != nil {
		return 0, nil, err
	}
	if err := b.audit.quiet(ctx, calm); err != nil {
		return 0, nil, err
	}
	after, err := b.extension.reconciliations(ctx, worker.ControllerName)
	return after - before, b.audit.calls.since(began), err
}

// writeMachineDeployments writes each MachineDeployment as a provider extension does, which knows nothing of the shares.
func (b *bench) writeMachineDeployments(ctx context.Context) error {
	landscape.Say("Writing MachineDeployments")
	began := time.Now()
	took, err := b.timed(ctx, b.shoots*poolsPerShoot, b.writeMachineDeployment)
	if err != nil {
		return err
	}
	if err := b.addWebhook(ctx, machinedeployment.WebhookName); err != nil {
		return err
	}
	b.addWrites("write of a MachineDeployment, with webhook", took)
	if err := b.audit.quiet(ctx, calm); err != nil {
		return err
	}
	b.add("calls after these writes", "%s", b.audit.calls.since(began))
	return b.check(ctx, "1")
}

// writeManagers writes the Deployments of machine-controller-manager as gardenlet does, which knows nothing of the
// container.
func (b *bench) writeManagers(ctx context.Context) error {
	landscape.Say("Writing Deployments of machine-controller-manager")
	took, err := b.timed(ctx, b.shoots*writesPerManager, b.writeManager)
	if err != nil {
		return err
	}
	if err := b.addWebhook(ctx, machinecontrollermanager.WebhookName); err != nil {
		return err
	}
	b.addWrites("write of a Deployment, with webhook", took)
	if err := b.audit.quiet(ctx, calm); err != nil {
		return err
	}
	return b.check(ctx, "1")
}

func (b *bench) writeMachineDeployment(ctx context.Context, i int) error {
	deployment := &machinev1alpha1.MachineDeployment{}
	deployment.Name, deployment.Namespace = deploymentName(i/poolsPerShoot, i%poolsPerShoot), namespaceOf(i/poolsPerShoot)
	return b.patch(ctx, deployment, `{"metadata":{"annotations":{%q:null,%q:null}},"spec":{"replicas":%d}}`,
		v1alpha1.AnnotationAutoPreserveFailedMax, v1alpha1.AnnotationMachinePreserveTimeout, 3+time.Now().Nanosecond()%4)
}

func (b *bench) writeManager(ctx context.Context, i int) error {
	manager := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: b.manager.Name, Namespace: namespaceOf(i % b.shoots)}}
	containers := raw(b.manager.Spec.Template.Spec.Containers).Raw
	return b.patch(ctx, manager, `{"spec":{"template":{"metadata":{"annotations":{"bench":%q}},"spec":{"containers":%s}}}}`, strconv.Itoa(i), containers)
}

func (b *bench) patchWorker(ctx context.Context, shoot int, format string, args ...any) error {
	return b.patch(ctx, &extensionsv1alpha1.Worker{ObjectMeta: metav1.ObjectMeta{Name: "bench", Namespace: namespaceOf(shoot)}}, format, args...)
}

func (b *bench) patch(ctx context.Context, object client.Object, format string, args ...any) error {
	if err := b.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...))); err != nil {
		return fmt.Errorf("could not write %T %s: %w", object, object.GetName(), err)
	}
	return nil
}

// timed does something a number of times, as often at the same time as there are writers, and returns how long each took.
func (b *bench) timed(ctx context.Context, n int, f func(ctx context.Context, i int) error) ([]time.Duration, error) {
	var (
		mutex sync.Mutex
		took  = make([]time.Duration, 0, n)
	)
	return took, parallel(ctx, n, func(ctx context.Context, i int) error {
		began := time.Now()
		err := f(ctx, i)
		elapsed := time.Since(began)
		mutex.Lock()
		defer mutex.Unlock()
		took = append(took, elapsed)
		return err
	})
}

func (b *bench) addWrites(measure string, took []time.Duration) {
	b.add(measure, "p50 %s, p99 %s of %d, %d at a time",
		milliseconds(percentile(took, 50)), milliseconds(percentile(took, 99)), len(took), writers)
}

func (b *bench) addWebhook(ctx context.Context, name string) error {
	histogram, err := b.extension.webhook(ctx, name)
	if err != nil {
		return err
	}
	b.add("webhook "+name, "p50 %s, p99 %s of %d", milliseconds(quantile(histogram, 0.5)), milliseconds(quantile(histogram, 0.99)), histogram.GetSampleCount())
	return nil
}
