// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package e2e runs the scenarios of package conformance on local landscapes with the real machine-controller-manager of
// both generations.
package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/test/conformance"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/simulator"
)

const (
	shootName = "e2e"

	// atOnce is how many scenarios run side by side on a landscape. With more of them, two processors are late for what must
	// happen within seconds.
	atOnce = 16

	// timeToReport is how long before the tests' timeout they are interrupted.
	timeToReport = 5 * time.Minute
	// nextTimeout is after what time no machine is expected any more that is to fail next.
	nextTimeout = 5 * time.Minute

	// drainTimeout and pdbDeadline are after what time drain strategies act, on pods without and with a budget.
	drainTimeout, pdbDeadline = 30 * time.Second, 40 * time.Second
	expectedDrainTime         = 2 * time.Second
)

// TestMain silences the libraries of Gardener, which log each look. A test that fails says itself what it waited for.
func TestMain(m *testing.M) {
	logf.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// In this order they start: what waits longest at first, and what needs the processors most not at the same time.

func TestMCM061(t *testing.T)       { run(t, "0.61", breaks) }
func TestAlone062(t *testing.T)     { run(t, "0.62", alone) }
func TestLifecycle062(t *testing.T) { runLifecycle(t, "0.62") }
func TestMCM062(t *testing.T)       { run(t, "0.62", breaksLast) }
func TestGarden(t *testing.T)       { runGarden(t) }

// What would make `make test` too long is run by `make test-long` alone, which finds it by its name.

func TestLongAlone061(t *testing.T)     { run(t, "0.61", alone) }
func TestLongLifecycle061(t *testing.T) { runLifecycle(t, "0.61") }
func TestLongSwitch(t *testing.T)       { switchAndMigrate(t) }

var (
	landscapes = flag.Int("landscapes", 3, "how many landscapes run at the same time")
	// slots has an entry for each landscape that runs.
	slots = sync.OnceValue(func() chan struct{} { return make(chan struct{}, *landscapes) })
	// starting is held while a landscape is being started: two at once leave so little to the others that controllers lose their leases
	// there.
	starting sync.Mutex
	// turn is closed when the test before has started.
	turn chan struct{}
)

// inTurn runs the test beside others. Go starts parallel tests in any order: those with landscapes start in that in which
// they are in the source.
func inTurn(t *testing.T) {
	t.Helper()
	before, mine := turn, make(chan struct{})
	turn = mine
	t.Parallel()
	if before != nil {
		<-before
	}
	slots() <- struct{}{}
	close(mine)
	t.Cleanup(func() { <-slots() })
}

// part is which scenarios run on a landscape. On one landscape for all of them, they would wait for each other.
type part struct {
	name string
	has  func(conformance.Scenario) bool
	// pools is how many pools there are, and so how many scenarios run side by side.
	pools int
	// uses says that the scenarios use all permissions, and drain strategies.
	uses bool
}

var (
	breaks = part{has: func(s conformance.Scenario) bool { return !s.Alone && !s.Healthy }, pools: atOnce, uses: true}
	// breaksLast is for when most others have ended.
	breaksLast = part{has: breaks.has, pools: atOnce + atOnce/4, uses: true}
	alone      = part{name: "-alone", has: func(s conformance.Scenario) bool { return s.Alone || s.Healthy }, pools: atOnce / 2}
)

func run(t *testing.T, generation string, part part) {
	inTurn(t)
	g := NewWithT(t)
	l, ctx := startLandscape(t, generation+part.name, landscape.Options{MCM: generation, Hosts: hosts.BareMetalHost})

	var pools []conformance.Scenario
	for i := range part.pools {
		pools = append(pools, conformance.Scenario{Name: fmt.Sprintf("pool-%02d", i)})
	}
	started := time.Now()
	g.Expect(seed.ApplyShoot(ctx, l.Seed.Config, withPowerCycles(g, shootFor(g, pools)))).To(Succeed())
	g.Expect(seed.WaitForShoot(ctx, l.Seed.Config, shootName)).To(Succeed())
	t.Logf("Shoot with %d pools was ready after %s", len(pools), time.Since(started).Round(time.Second))

	environment := environmentOf(g, l)
	environment.Select = func(s conformance.Scenario) bool { return !s.Long && part.has(s) }
	report := conformance.Run(ctx, t, environment)
	defer func() { fmt.Fprint(t.Output(), report.Markdown()) }()
	if !part.uses {
		return
	}

	afterwards := func(look func(*life)) func(*testing.T) {
		return func(t *testing.T) {
			look(&life{Environment: environment, WithT: NewWithT(t), t: t, ctx: ctx, landscape: l})
		}
	}
	report.Run(t, "drain-calls", []string{"D3"}, afterwards((*life).drainCalls))
	report.Run(t, "grants", nil, afterwards((*life).usedGrants))
}

// startLandscape starts a landscape in a directory of that name, and ends it with the test. The context ends when the landscape fails, or
// when the time of the tests is nearly over: Go tells nothing of what they wait for when it ends them.
func startLandscape(t *testing.T, name string, o landscape.Options) (*landscape.Landscape, context.Context) {
	t.Helper()
	g := NewWithT(t)
	ctx := t.Context()
	if deadline, ok := t.Deadline(); ok {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadlineCause(ctx, deadline.Add(-timeToReport), errors.New("the time of the tests is nearly over"))
		t.Cleanup(stop)
	}
	o.Dir, o.Out = filepath.Join("testdata", "landscape-"+name), t.Output()
	starting.Lock()
	l, err := landscape.Start(ctx, o)
	starting.Unlock()
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(l.Stop(context.Background())).To(Succeed()) })
	ctx = l.Watch(ctx)
	t.Cleanup(func() {
		g.Expect(context.Cause(ctx)).To(Equal(context.Canceled), "nothing but the end of the test ended its context")
	})
	return l, ctx
}

func environmentOf(g *WithT, l *landscape.Landscape) *conformance.Environment {
	seedConfig, shootConfig := unlimited(l.Seed.Config), unlimited(l.Shoot.Config)
	seedClient, err := client.NewWithWatch(seedConfig, client.Options{Scheme: kubernetesclient.SeedScheme})
	g.Expect(err).NotTo(HaveOccurred())
	shootClient, err := client.NewWithWatch(shootConfig, client.Options{Scheme: conformance.ShootScheme})
	g.Expect(err).NotTo(HaveOccurred())
	kind, err := l.Directory.Hosts()
	g.Expect(err).NotTo(HaveOccurred())
	next := make(chan struct{}, 1) // has an entry while a machine is to fail next
	machinePod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: seed.MachineNamespace(shootName)}}
	}
	inject := func(ctx context.Context, object client.Object, fault conformance.Fault) error {
		value, err := json.Marshal(fault)
		if err != nil || fault == conformance.NoFault {
			value = []byte("null")
		}
		return seedClient.Patch(ctx, object, client.RawPatch(types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, simulator.FailureAnnotation, value)))
	}
	return &conformance.Environment{
		Seed:      seedClient,
		Shoot:     shootClient,
		Namespace: seed.ControlPlaneNamespace(shootName),
		Inject: func(ctx context.Context, machine *machinev1alpha1.Machine, fault conformance.Fault) error {
			return inject(ctx, machinePod("machine-"+machine.Name), fault)
		},
		InjectNext: func(ctx context.Context, machineDeployment string, fault conformance.Fault) error {
			select {
			case next <- struct{}{}:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			known, err := podsOfMachines(ctx, seedClient)
			// The default of the namespace befalls all new machines: those of other MachineDeployments are healed.
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: seed.ControlPlaneNamespace(shootName)}}
			if err = errors.Join(err, inject(ctx, namespace, fault)); err != nil {
				<-next
				return err
			}
			go func() {
				defer func() { <-next }()
				var failed, healed bool
				_ = wait.PollUntilContextTimeout(ctx, pollInterval, nextTimeout, true, func(ctx context.Context) (bool, error) {
					pods, err := podsOfMachines(ctx, seedClient)
					for name, pod := range pods {
						switch {
						case known[name] != nil || pod.Annotations[simulator.FailureAnnotation] != string(fault):
						case strings.HasPrefix(name, "machine-"+machineDeployment+"-"):
							failed = true
						default: // a machine may be gone meanwhile
							err = errors.Join(err, client.IgnoreNotFound(inject(ctx, pod, conformance.NoFault)))
						}
					}
					if failed && !healed {
						healed = inject(ctx, namespace, conformance.NoFault) == nil
						return false, nil // others may have come before that
					}
					return healed && err == nil, nil
				})
				if !healed { // a scenario that fails adds no machine
					_ = inject(ctx, namespace, conformance.NoFault)
				}
			}()
			return nil
		},
		CrashLoop: func(ctx context.Context, machine *machinev1alpha1.Machine) (func(context.Context) error, error) {
			return crashLoop(ctx, seedClient, machine)
		},
		RefuseEvictions: func(ctx context.Context, key, value string) (func(context.Context) error, error) {
			return refuseEvictions(ctx, shootClient, key, value)
		},
		LimitStorm: func(ctx context.Context, maxFailing int32, settlingTime time.Duration) (func(context.Context) error, error) {
			undo := func(ctx context.Context) error { return l.Reconfigure(ctx, nil) }
			return undo, l.Reconfigure(ctx, map[string]any{"storm": map[string]any{"maxFailing": maxFailing, "settlingTime": settlingTime.String()}})
		},
		LimitMachineHours: func(ctx context.Context, hours int32) error {
			if hours == 0 {
				return l.Reconfigure(ctx, nil)
			}
			return l.Reconfigure(ctx, map[string]any{"maxMachineHours": hours})
		},
		ShootAway:   l.FreezeShoot,
		Hosts:       hostsOf(kind, seedClient),
		KillSidecar: func(ctx context.Context) error { return killSidecar(ctx, seedClient) },
		Plugin:      pluginOf(l),
	}
}

// podsOfMachines returns the pods that stand for machines, by their names.
func podsOfMachines(ctx context.Context, c client.Client) (map[string]*corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := c.List(ctx, list, client.InNamespace(seed.MachineNamespace(shootName))); err != nil {
		return nil, err
	}
	pods := make(map[string]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[list.Items[i].Name] = &list.Items[i]
	}
	return pods, nil
}

// unlimited returns a copy of the configuration with which the scenarios do not wait for each other.
func unlimited(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	return config
}

// shootFor returns a Shoot with worker pools that have the names and the shares of scenarios.
func shootFor(g *WithT, scenarios []conformance.Scenario) *gardencorev1beta1.Shoot {
	shoot := &gardencorev1beta1.Shoot{
		ObjectMeta: metav1.ObjectMeta{Name: shootName},
		Spec: gardencorev1beta1.ShootSpec{
			Region:     "local",
			Kubernetes: gardencorev1beta1.Kubernetes{Version: "1.36.3"},
			Networking: &gardencorev1beta1.Networking{Type: new("calico")},
			Provider:   gardencorev1beta1.Provider{Type: "local"},
		},
	}
	config := v1alpha1.MachinePreservationConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "MachinePreservationConfig"},
		Evidence: &v1alpha1.Evidence{Enabled: new(true), NodeLogs: new(true)},
		// Machine-controller-manager begins to evict pods 15s after the deletion of a machine, later where it is busy, and deletes them by
		// force after a minute.
		DrainStrategies: &v1alpha1.DrainStrategies{
			Timeout:                  &metav1.Duration{Duration: drainTimeout},
			ExpectedDrainTime:        &metav1.Duration{Duration: expectedDrainTime},
			PDBForceDrainTimeout:     &metav1.Duration{Duration: pdbDeadline - expectedDrainTime},
			IgnoredNamespacePatterns: []string{".*-ignored"},
		},
		NodeMaintenance: &v1alpha1.NodeMaintenance{
			MaxParallelOperations:  new(intstr.FromInt(0)),
			MaxNodeMaintenanceTime: &metav1.Duration{Duration: 200 * time.Second},
			MaxHoldTime:            &metav1.Duration{Duration: 210 * time.Second},
		},
	}
	for _, scenario := range scenarios {
		shoot.Spec.Provider.Workers = append(shoot.Spec.Provider.Workers, gardencorev1beta1.Worker{
			Name:           scenario.Name,
			Machine:        gardencorev1beta1.Machine{Type: "local"},
			Minimum:        2,
			Maximum:        4,
			MaxSurge:       new(intstr.FromInt32(1)),
			MaxUnavailable: new(intstr.FromInt32(0)),
			Zones:          []string{"0"},
			MachineControllerManagerSettings: &gardencorev1beta1.MachineControllerManagerSettings{
				MachineHealthTimeout:   &metav1.Duration{Duration: 20 * time.Second},
				MachineCreationTimeout: &metav1.Duration{Duration: 2 * time.Minute},
				MachineDrainTimeout:    &metav1.Duration{Duration: time.Minute},
			},
		})
		config.Workers = append(config.Workers, v1alpha1.Worker{
			Name:                     scenario.Name,
			MachineControllerManager: &v1alpha1.MachineControllerManagerSettings{AutoPreserveFailedMax: new(scenario.Share)},
		})
	}
	shoot.Spec.Extensions = []gardencorev1beta1.Extension{{Type: "machine-preservation", ProviderConfig: &runtime.RawExtension{Raw: encode(g, config)}}}
	return shoot
}

// editConfig edits the configuration of the extension in a Shoot.
func editConfig(g *WithT, shoot *gardencorev1beta1.Shoot, edit func(*v1alpha1.MachinePreservationConfig)) *gardencorev1beta1.Shoot {
	config := v1alpha1.MachinePreservationConfig{}
	g.Expect(json.Unmarshal(shoot.Spec.Extensions[0].ProviderConfig.Raw, &config)).To(Succeed())
	edit(&config)
	shoot.Spec.Extensions[0].ProviderConfig.Raw = encode(g, config)
	return shoot
}

func encode(g *WithT, config v1alpha1.MachinePreservationConfig) []byte {
	raw, err := json.Marshal(config)
	g.Expect(err).NotTo(HaveOccurred())
	return raw
}
