// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package app is the command line of the preservation controller.
package app

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/version/verflag"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	logzap "sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host/drivers"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/failuredrain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/failures"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance/garbagecollector"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance/nodemaintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance/operatorconfig"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance/scheduler"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/quarantine"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/updatedrain"
)

// Name is the name of the command, of its container, and of its lease.
const Name = "machine-preservation-controller"

// NewCommand returns the command that runs the sidecar.
func NewCommand() *cobra.Command {
	opts := &Options{}
	cmd := &cobra.Command{
		Use:           Name,
		Short:         "Preserves failed machines of a shoot for a limited time.",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()
			logf.SetLogger(logzap.New())
			if err := opts.Validate(); err != nil {
				return err
			}
			return run(cmd.Context(), opts)
		},
	}
	opts.AddFlags(cmd.Flags())
	verflag.AddFlags(cmd.Flags())
	return cmd
}

// These trade time that is not needed for memory that is: nearly nothing happens most of the time, in every shoot.
const (
	gcPercent = 25
	// releasePeriod is how often memory is given back that a busier time has left, or the first look at all objects. Go's
	// runtime by itself keeps a part of it for good.
	releasePeriod = time.Minute
)

const (
	// probeTimeout is that of the kubelet.
	probeTimeout = 5 * time.Second
	// configInterval is how often it is looked whether the kubeconfig of the shoot has come.
	configInterval = 5 * time.Second
	// leaseDuration is so much shorter than the 15 seconds of machine-controller-manager, that after a crash of both the
	// machines are held before it looks at them: one of a generation that does not know how they are held terminates them.
	leaseDuration = 9 * time.Second
	renewDeadline = 7 * time.Second
)

func run(ctx context.Context, opts *Options) error {
	// The samples take memory, too, and nobody can ask for the profile.
	goruntime.MemProfileRate = 0
	debug.SetGCPercent(gcPercent)
	go wait.UntilWithContext(ctx, func(context.Context) { debug.FreeOSMemory() }, releasePeriod)

	controlConfig, err := restConfig(opts.ControlKubeconfig)
	if err != nil {
		return fmt.Errorf("failed to read --control-kubeconfig: %w", err)
	}
	if err := serveProbes(ctx, opts.HealthProbeBindAddress); err != nil {
		return fmt.Errorf("failed to serve the health probes: %w", err)
	}
	targetConfig, err := awaitConfig(ctx, opts.TargetKubeconfig)
	if err != nil {
		return fmt.Errorf("failed to wait for --target-kubeconfig: %w", err)
	}

	mgr, err := NewManager(ctx, opts, controlConfig, targetConfig, func(*manager.Options) {})
	if err != nil {
		return err
	}
	logf.Log.Info("Starting", "namespace", opts.Namespace, "holder", opts.Holder, "healthTimeout", opts.Timeouts.Health, "creationTimeout", opts.Timeouts.Creation, "drainTimeout", opts.Timeouts.Drain, "nodeConditions", opts.NodeConditions, "drainStrategies", opts.DrainStrategies.Enabled, "drainConditions", opts.DrainConditions, "nodeMaintenance", opts.NodeMaintenance.Enabled, "powerCycle", opts.PowerCycle.Enabled, "evidence", opts.Evidence.Enabled, "failures", opts.Failures)
	return mgr.Start(ctx)
}

// NewManager returns the manager of all that the options switch on, with clients of the cluster with the Machines and of that
// with the Nodes. Its own options are adjusted before it is made.
func NewManager(ctx context.Context, opts *Options, controlConfig, targetConfig *rest.Config, adjust func(*manager.Options)) (manager.Manager, error) {
	holder, err := opts.holder()
	if err != nil {
		return nil, err
	}
	s := &sidecar{opts: opts, controlConfig: controlConfig, targetConfig: targetConfig, kept: domain.Group{
		Holder:          holder,
		MaxTimeout:      opts.MaxPreserveTimeout,
		Timeouts:        opts.Timeouts,
		NodeConditions:  opts.NodeConditions,
		Maintenance:     domain.MaintenanceOptions{Enabled: opts.NodeMaintenance.Enabled, MaxHoldTime: opts.NodeMaintenance.MaxHoldTime},
		Remediation:     domain.RemediationOptions{Enabled: opts.PowerCycle.Enabled},
		DrainConditions: opts.DrainConditions,
	}}
	if opts.PowerCycle.Enabled {
		kind, err := drivers.For(configv1alpha1.HostKind(opts.PowerCycle.HostKind))
		if err != nil {
			return nil, err
		}
		s.hosts = &remediation.Hosts{Kind: kind, Namespace: opts.Namespace, Kubeconfig: opts.PowerCycle.HostKubeconfig, Config: controlConfig}
	}
	if err := s.connectSeed(ctx, adjust); err != nil {
		return nil, err
	}
	if err := s.connectShoot(ctx); err != nil {
		return nil, err
	}
	for _, controllers := range []struct {
		of      string
		enabled bool
		add     func(context.Context) error
	}{
		{"failures", opts.Failures, s.addFailures}, // preservation tells it of them, and the next one
		{"quarantine", opts.PowerCycle.Enabled && opts.PowerCycle.Quarantine.Failures > 0, s.addQuarantine},
		{"preservation", true, s.addPreservation},
		{"drains", true, s.addDrain},
		{"drain strategies", opts.DrainStrategies.Enabled, s.addDrainStrategies},
		{"node maintenances", opts.NodeMaintenance.Enabled, s.addMaintenance},
		{"power cycles", opts.PowerCycle.Enabled, s.addRemediation},
		{"evidence", opts.Evidence.Enabled, s.addEvidence},
	} {
		if controllers.enabled {
			if err := controllers.add(ctx); err != nil {
				return nil, fmt.Errorf("failed to add the controllers of %s: %w", controllers.of, err)
			}
		}
	}
	return s.mgr, nil
}

// sidecar is what controllers are made of.
type sidecar struct {
	opts                        *Options
	controlConfig, targetConfig *rest.Config
	kept                        domain.Group

	mgr     manager.Manager
	target  cluster.Cluster
	nodes   *shoot.Nodes
	pods    kubernetes.Interface
	ledgers []preservation.Ledger
	// hosts are nil where nothing is power-cycled.
	hosts   *remediation.Hosts
	leading pace.Leading
}

// connectSeed makes the manager, with a cache of the Machines and of what they belong to.
func (s *sidecar) connectSeed(ctx context.Context, adjust func(*manager.Options)) error {
	sourceScheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(sourceScheme))
	utilruntime.Must(machinev1alpha1.AddToScheme(sourceScheme))
	utilruntime.Must(coordinationv1.AddToScheme(sourceScheme)) // places are given away under a Lease, which is never watched

	options := manager.Options{
		Logger: logf.Log,
		Scheme: sourceScheme,
		// Neither API server has to be there to be asked what it serves.
		MapperProvider: mapperFor(map[schema.GroupVersion][]string{
			machinev1alpha1.SchemeGroupVersion: {"Machine", "MachineSet", "MachineDeployment"},
			coordinationv1.SchemeGroupVersion:  {"Lease"},
			corev1.SchemeGroupVersion:          {"ConfigMap"},
		}),
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{s.opts.Namespace: {}},
			ByObject: map[client.Object]cache.ByObject{
				// What is read is never changed: the controllers edit copies.
				&machinev1alpha1.MachineDeployment{}: {Transform: shoot.Strip(stripMachineDeployment), UnsafeDisableDeepCopy: new(true)},
				&machinev1alpha1.MachineSet{}:        {Transform: shoot.Strip(stripMachineSet), UnsafeDisableDeepCopy: new(true)},
				&machinev1alpha1.Machine{}:           {Transform: shoot.Strip(stripMachine), UnsafeDisableDeepCopy: new(true)},
			},
		},
		LeaderElection:                true,
		LeaderElectionID:              Name,
		LeaderElectionNamespace:       s.opts.Namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 new(leaseDuration),
		RenewDeadline:                 new(renewDeadline),
		Metrics:                       metricsserver.Options{BindAddress: s.opts.MetricsBindAddress},
	}
	adjust(&options)
	mgr, err := manager.New(s.controlConfig, options)
	if err != nil {
		return fmt.Errorf("failed to create the manager: %w", err)
	}
	s.mgr = mgr
	return shoot.IndexMachines(ctx, mgr.GetFieldIndexer())
}

// connectShoot makes the clients of the shoot, with a cache of the Nodes, and has the manager run that beside its own.
func (s *sidecar) connectShoot(ctx context.Context) error {
	connection := &shoot.Connection{}
	s.targetConfig.Wrap(shoot.Limit)
	target, err := cluster.New(s.targetConfig, func(o *cluster.Options) {
		o.Logger = logf.Log
		o.Scheme = scheme.Scheme
		o.NewCache = connection.NewCache
		o.Cache.ByObject = map[client.Object]cache.ByObject{&corev1.Node{}: {Transform: stripNode(s.opts.PowerCycle.Enabled), UnsafeDisableDeepCopy: new(true)}}
		kinds := map[schema.GroupVersion][]string{corev1.SchemeGroupVersion: {"Node"}}
		if s.opts.NodeMaintenance.Enabled {
			if !o.Scheme.IsVersionRegistered(maintenancev1alpha1.SchemeGroupVersion) { // it is that of all clients, which may read it
				utilruntime.Must(maintenancev1alpha1.AddToScheme(o.Scheme))
			}
			maps.Copy(o.Cache.ByObject, maintenance.ByObject())
			kinds[maintenancev1alpha1.SchemeGroupVersion] = []string{"NodeMaintenance", "MaintenanceOperatorConfig"}
		}
		o.MapperProvider = mapperFor(kinds)
	})
	if err != nil {
		return fmt.Errorf("failed to create the client for the shoot: %w", err)
	}
	s.target = target
	if s.nodes, err = shoot.NewNodes(ctx, target); err != nil {
		return err
	}
	if err := s.nodes.Report(connection); err != nil {
		return fmt.Errorf("failed to report whether the shoot is known: %w", err)
	}
	if s.pods, err = kubernetes.NewForConfig(s.targetConfig); err != nil {
		return fmt.Errorf("failed to create the client for pods: %w", err)
	}
	if err := s.mgr.Add(beside{target}); err != nil {
		return fmt.Errorf("failed to add the shoot: %w", err)
	}
	return nil
}

func (s *sidecar) addPreservation(context.Context) error {
	return (&preservation.Reconciler{
		Holder:          s.kept.Holder,
		MaxTimeout:      s.kept.MaxTimeout,
		Timeouts:        s.kept.Timeouts,
		NodeConditions:  s.kept.NodeConditions,
		Storm:           s.opts.Storm,
		Maintenance:     s.kept.Maintenance,
		Remediation:     s.kept.Remediation,
		DrainConditions: s.kept.DrainConditions,
		Hours:           s.hours(),
		Ledgers:         s.ledgers,
	}).AddToManager(s.mgr, s.nodes)
}

// hours returns what keeps account of machine-hours, nil where nobody does.
func (s *sidecar) hours() *preservation.Hours {
	if s.opts.MaxMachineHours == 0 {
		return nil
	}
	return &preservation.Hours{Max: s.opts.MaxMachineHours, Client: s.mgr.GetClient(), Reader: s.mgr.GetAPIReader(), Namespace: s.opts.Namespace}
}

func (s *sidecar) addFailures(context.Context) error {
	shoot, err := failures.NewClient(s.targetConfig)
	if err != nil {
		return err
	}
	ledger := &failures.Ledger{Namespace: s.opts.Namespace, Shoot: shoot, Timeouts: s.opts.Timeouts, NodeConditions: s.opts.NodeConditions}
	if s.hosts != nil {
		ledger.HostOf = s.hosts.NameOf
	}
	if s.opts.Evidence.Enabled {
		clients, err := evidence.NewClients(s.controlConfig, s.targetConfig, false)
		if err != nil {
			return err
		}
		ledger.EvidenceOf = func(ctx context.Context, machine string, since time.Time) string {
			return clients.StoredName(ctx, s.opts.Namespace, machine, since)
		}
	}
	s.ledgers = append(s.ledgers, ledger)
	return ledger.AddToManager(s.mgr, s.nodes)
}

func (s *sidecar) addQuarantine(context.Context) error {
	kind, err := s.opts.quarantining()
	if err != nil {
		return err
	}
	r := &quarantine.Reconciler{
		Settings:  s.opts.PowerCycle.Quarantine,
		Seed:      s.opts.PowerCycle.SeedName,
		Namespace: s.opts.Namespace,
		Kind:      kind,
		Driver:    s.hosts.Driver,
		Timeouts:  s.opts.Timeouts,
	}
	s.ledgers = append(s.ledgers, r)
	return r.AddToManager(s.mgr)
}

func (s *sidecar) addDrain(context.Context) error {
	return (&failuredrain.Reconciler{
		Timeouts:    s.opts.Timeouts,
		Maintenance: s.opts.NodeMaintenance.Enabled,
		Conditions:  s.opts.DrainConditions,
		Strategies:  s.opts.DrainStrategies.Enabled,
	}).AddToManager(s.mgr, s.nodes, s.pods)
}

func (s *sidecar) addDrainStrategies(context.Context) error {
	strategies, err := s.opts.DrainStrategies.strategies()
	if err != nil {
		logf.Log.Error(err, "Drain strategies do nothing")
	}
	return (&updatedrain.Reconciler{Strategies: strategies, Conditions: s.opts.DrainConditions}).AddToManager(s.mgr, s.nodes, s.pods)
}

func (s *sidecar) addMaintenance(ctx context.Context) error {
	maintenances, err := maintenance.NewMaintenances(ctx, s.target)
	if err != nil {
		return err
	}
	namespaces := s.opts.NodeMaintenance.Namespaces
	if err := (&nodemaintenance.Reconciler{Namespaces: namespaces, Preservation: s.kept}).AddToManager(s.mgr, s.nodes, maintenances, s.pods); err != nil {
		return err
	}
	if err := (&scheduler.Reconciler{Namespaces: namespaces}).AddToManager(s.mgr, s.nodes, maintenances); err != nil {
		return err
	}
	if err := (&operatorconfig.Reconciler{}).AddToManager(s.mgr, maintenances); err != nil {
		return err
	}
	return (&garbagecollector.Reconciler{MaxOvertime: s.opts.NodeMaintenance.MaxOvertime}).AddToManager(s.mgr, maintenances)
}

func (s *sidecar) addRemediation(context.Context) error {
	return (&remediation.Reconciler{
		Seed:           s.opts.PowerCycle.SeedName,
		AllowNodes:     s.opts.PowerCycle.ShootRequests,
		MaxPerShoot:    s.opts.PowerCycle.MaxPerShoot,
		NeedsGrant:     s.opts.PowerCycle.Grants,
		Storm:          s.opts.Storm,
		MaxServicing:   s.opts.PowerCycle.MaxServicing,
		Evidence:       s.opts.Evidence.Enabled,
		Leading:        &s.leading,
		Timeouts:       s.opts.Timeouts,
		NodeConditions: s.opts.NodeConditions,
	}).AddToManager(s.mgr, s.nodes, s.pods, s.hosts)
}

func (s *sidecar) addEvidence(context.Context) error {
	clients, err := evidence.NewClients(s.controlConfig, s.targetConfig, s.opts.NodeMaintenance.Enabled)
	if err != nil {
		return err
	}
	if s.opts.Evidence.NodeLogs {
		if err := clients.AskKubelets(s.targetConfig); err != nil {
			return err
		}
	}
	r := &evidence.Reconciler{Retention: s.opts.Evidence.Retention, Budget: s.opts.Evidence.Budget, Args: os.Args[1:], Leading: &s.leading}
	if s.hosts != nil {
		r.Host = s.hosts.Whole
	}
	return r.AddToManager(s.mgr, s.opts.Namespace, clients)
}

// serveProbes answers the health probes as long as the process lives, also before there is a manager: the pod is that of
// machine-controller-manager, which must not be restarted, nor taken for not ready, for what this process waits for.
func serveProbes(ctx context.Context, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	probes := http.NewServeMux()
	for _, path := range []string{"/healthz", "/readyz"} {
		probes.Handle(path, healthz.CheckHandler{Checker: healthz.Ping})
	}
	server := &manager.Server{Name: "health probe", Server: &http.Server{Handler: probes, ReadHeaderTimeout: probeTimeout}, Listener: listener}
	go func() {
		if err := server.Start(ctx); err != nil {
			logf.Log.Error(err, "Health probes are not served any more")
		}
	}()
	return nil
}

// awaitConfig reads a kubeconfig, and waits until it can be used: the Secrets with it and with the token that it names are
// optional in the pod. They come later, or never if preservation is being disabled.
func awaitConfig(ctx context.Context, kubeconfig string) (*rest.Config, error) {
	var config *rest.Config
	err := wait.PollUntilContextCancel(ctx, configInterval, true, func(context.Context) (bool, error) {
		var err error
		if config, err = restConfig(kubeconfig); err == nil {
			// It reads the token.
			_, err = rest.TransportFor(config)
		}
		if err != nil {
			logf.Log.Info("Waiting for the kubeconfig of the shoot", "kubeconfig", kubeconfig, "reason", err.Error())
		}
		return err == nil, nil
	})
	return config, err
}

// beside is a cluster whose caches the manager does not wait for, which may take as long as the shoot's API server is away
// (P9). When they end, so does the manager: they must not be dead in silence.
type beside struct{ cluster cluster.Cluster }

// Start implements manager.Runnable.
func (b beside) Start(ctx context.Context) error {
	if err := b.cluster.Start(ctx); err != nil {
		return fmt.Errorf("failed to run the shoot's caches: %w", err)
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (beside) NeedLeaderElection() bool { return false }

// mapperFor returns a provider of a mapper that knows some kinds and their lists, and nothing else. It asks nobody.
func mapperFor(kinds map[schema.GroupVersion][]string) func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	return func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
		mapper := meta.NewDefaultRESTMapper(slices.Collect(maps.Keys(kinds)))
		for version, names := range kinds {
			for _, name := range names {
				var scope meta.RESTScope = meta.RESTScopeNamespace
				if version == corev1.SchemeGroupVersion && name == "Node" {
					scope = meta.RESTScopeRoot
				}
				mapper.Add(version.WithKind(name), scope)
				// A cache of some namespaces asks for the scope of lists as well.
				mapper.Add(version.WithKind(name+"List"), scope)
			}
		}
		return mapper, nil
	}
}

// restConfig reads a kubeconfig file, or the service account of the pod. The limits are those of
// machine-controller-manager: a burst of failures must not wait for them.
func restConfig(kubeconfig string) (*rest.Config, error) {
	var (
		config *rest.Config
		err    error
	)
	if kubeconfig == inCluster {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, err
	}
	config.UserAgent = rest.DefaultKubernetesUserAgent()
	config.QPS, config.Burst = 100, 200
	return config, nil
}
