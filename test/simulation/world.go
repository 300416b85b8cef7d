// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
	"github.com/gardener/gardener-extension-machine-preservation/test/simulation/mcm"
	_ "github.com/gardener/gardener-extension-machine-preservation/test/simulation/quiet" // bubbles have clocks of their own
)

const (
	namespace = "shoot--test--one"
	pool      = "pool"

	healthTimeout   = 10 * time.Minute
	creationTimeout = 20 * time.Minute
	drainTimeout    = 2 * time.Hour
)

// World is all that a history happens to: two API servers, the processes that use them, and a cloud. Who holds several mutexes
// takes them in this order, as the clock stands still while somebody waits for one: requestors or pods, cloud, API server, oracle.
type World struct {
	ctx         context.Context
	end         context.CancelFunc
	begin       time.Time
	seed, shoot *APIServer
	cloud       *Cloud
	pods        *Pods
	processes   map[string]*Process // by their names
	oracle      *oracle
	requestors  *requestors
	prover      *prover
	// zones are the MachineDeployments of the pool.
	zones []string
	// rolls is how often the template of the machines was changed.
	rolls int

	mutex sync.Mutex
	notes []note
}

// The processes.
const (
	sidecarName           = "sidecar"
	managerName           = "mcm"
	machineControllerName = "machine-controller"
	// rivalName is a second sidecar, which does not run unless a Rival does.
	rivalName = "rival"
)

var processNames = []string{managerName, machineControllerName, sidecarName}

// newWorld starts everything, with a MachineDeployment. It must be called in a bubble of its own, and stopped.
func newWorld(h History) *World {
	w := &World{begin: time.Now(), zones: []string{pool}, seed: NewAPIServer("seed"), shoot: NewAPIServer("shoot"), processes: map[string]*Process{}}
	if h.Shared {
		w.zones = append(w.zones, pool+"-b")
	}
	w.ctx, w.end = context.WithCancel(context.Background())
	w.cloud = newCloud(w.seed, w.shoot)
	w.oracle = newOracle(h)
	w.requestors = newRequestors(w)
	w.prover = &prover{w: w, how: h.Proof, seen: map[string]time.Time{}}
	w.seed.OnChange, w.shoot.OnChange = w.oracle.observe, w.oracle.observe
	w.seed.OnEvent = func(by, name, reason, note string) {
		w.note(by, fmt.Sprintf("says of %s: %s", name, note))
		if by == sidecarName {
			w.oracle.observeEvent(name, reason)
		}
	}
	w.pods = newPods(w.shoot, w.cloud)

	options := func(life *Life) mcm.Options {
		return mcm.Options{Namespace: namespace, Seed: life.config("seed"), Shoot: life.config("shoot")}
	}
	w.add(managerName, func(ctx context.Context, life *Life) error { return mcm.Manager(ctx, options(life)) })
	w.add(machineControllerName, func(ctx context.Context, life *Life) error {
		return mcm.MachineController(ctx, options(life), account{w.cloud, life})
	})
	run := func(ctx context.Context, life *Life) error {
		h := h
		h.ShowsDrains = w.oracle.showsDrains()
		return runSidecar(ctx, life, h)
	}
	if h.Alone {
		run = func(ctx context.Context, _ *Life) error { <-ctx.Done(); return nil }
	}
	w.add(sidecarName, run)
	w.add(rivalName, run)
	w.processes[rivalName].Name = sidecarName

	current.Store(w)
	w.create("secrets", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: pool, Namespace: namespace}, Data: map[string][]byte{"userData": []byte("boot")}})
	w.create("machineclasses", machineClass(pool))
	for _, zone := range w.zones {
		w.createZone(h, zone)
	}
	w.requestors.configure()
	for _, name := range processNames {
		w.processes[name].Start()
	}
	go w.run()
	return w
}

// stop ends all processes, and waits until they have left. What they leave behind does not keep the objects.
func (w *World) stop() {
	w.end()
	time.Sleep(2 * time.Minute)
	w.seed.clear()
	w.shoot.clear()
}

func (w *World) add(name string, run func(context.Context, *Life) error) {
	w.processes[name] = &Process{
		Name: name, ctx: w.ctx, run: run,
		links: map[string]*link{"seed": newLink(w.seed), "shoot": newLink(w.shoot)},
		onFault: func(a *WriteFault) {
			if w.oracle.disturb(a.Downtime + a.Late); name == sidecarName {
				w.oracle.excuse(rules.Mute, a.Downtime+a.Late)
			}
			w.note(name, "it happens: "+FailWrite{name, *a}.String())
		},
		onEnd: func(err error) { w.note(name, "ends, and is started again: "+err.Error()) },
	}
}

func (w *World) run() {
	time.Sleep(time.Second) // not at the time of an event
	ticker := time.NewTicker(nodeTick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			w.cloud.tick()
			w.pods.tick()
			w.requestors.tick()
			w.prover.tick()
			w.oracle.look()
		case <-w.ctx.Done():
			return
		}
	}
}

// now returns the time since the beginning.
func (w *World) now() time.Duration { return time.Since(w.begin) }

const user = "user"

func (w *World) createZone(h History, zone string) {
	labels := map[string]string{"name": zone}
	meta := metav1.ObjectMeta{Name: zone, Namespace: namespace}
	deployment := &machinev1alpha1.MachineDeployment{ObjectMeta: meta, Spec: machinev1alpha1.MachineDeploymentSpec{
		Replicas: w.scaled(h.Replicas, zone),
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Strategy: machinev1alpha1.MachineDeploymentStrategy{
			Type: machinev1alpha1.RollingUpdateMachineDeploymentStrategyType,
			RollingUpdate: &machinev1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: machinev1alpha1.UpdateConfiguration{
				MaxSurge: new(intstr.FromInt32(1)), MaxUnavailable: new(intstr.FromInt32(0)),
			}},
		},
		MinReadySeconds: 500,
		Template: machinev1alpha1.MachineTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: machinev1alpha1.MachineSpec{
				Class: machinev1alpha1.ClassSpec{Kind: "MachineClass", Name: pool},
			},
		},
	}}
	if !old {
		// As the webhook sets it: MCM takes a request up by itself while the sidecar does not run.
		deployment.Spec.Template.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{MachinePreserveTimeout: &metav1.Duration{Duration: h.Timeout}}
	}
	if h.Alone {
		deployment.Spec.AutoPreserveFailedMachineMax = int32(h.Share)
	} else {
		deployment.Annotations = map[string]string{
			v1alpha1.AnnotationAutoPreserveFailedMax:  strconv.Itoa(h.Share),
			v1alpha1.AnnotationPreferNewFailures:      strconv.FormatBool(h.PrefersNew),
			v1alpha1.AnnotationMachinePreserveTimeout: h.Timeout.String(),
			v1alpha1.AnnotationPowerCycleSettings:     powerCycleSettings(false),
		}
		if h.Proof != "" {
			deployment.Annotations[v1alpha1.AnnotationValidation] = validationSettings
		}
		if h.Shared {
			deployment.Annotations[v1alpha1.AnnotationSharedInPool] = pool
		}
	}
	w.create("machinedeployments", deployment)
}

func (w *World) create(resource string, object metav1.Object) {
	if _, err := w.seed.Create(user, key{resource, object.GetNamespace(), object.GetName()}, toUnstructured(object)); err != nil {
		panic(err) // there is nothing yet
	}
}
