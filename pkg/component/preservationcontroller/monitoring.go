// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservationcontroller

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	"github.com/gardener/gardener/pkg/component/observability/monitoring/prometheus/shoot"
	monitoringutils "github.com/gardener/gardener/pkg/component/observability/monitoring/utils"
	"github.com/gardener/gardener/pkg/controllerutils"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"
	kubernetesutils "github.com/gardener/gardener/pkg/utils/kubernetes"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	portNameMetrics = "metrics"
	// tooLate matches the bucket of the holds that came after the deadline. Prometheus 3 writes its bound as 0.0.
	tooLate = `le=~"0|0.0"`
	// sampleLimit is more than a shoot with 100 pools in three zones and 5,000 preserved machines can have.
	sampleLimit = 50000
	runbooks    = "https://github.com/gardener/gardener-extension-machine-preservation/blob/main/docs/operations/troubleshooting.md"
)

// metrics are what the shoot's Prometheus keeps.
var metrics = []string{
	"machine_preservation_machines",
	"machine_preservation_share",
	"machine_preservation_share_used",
	"machine_preservation_storm",
	"machine_preservation_machines_failing",
	"machine_preservation_expiry_timestamp_seconds",
	"machine_preservation_since_timestamp_seconds",
	"machine_preservation_drains",
	"machine_preservation_machine_hours",
	"machine_preservation_machine_hours_max",
	"machine_preservation_drain_pods_total",
	"machine_preservation_node_drain_timeout",
	"machine_preservation_node_maintenances",
	"machine_preservation_node_maintenance_slots",
	"machine_preservation_node_maintenance_overdue",
	"machine_preservation_node_maintenance_drains_failed_total",
	"machine_preservation_node_maintenance_phase_duration_seconds_bucket",
	"machine_preservation_node_maintenance_phase_duration_seconds_count",
	"machine_preservation_node_maintenance_phase_duration_seconds_sum",
	"machine_preservation_power_cycles_total",
	"machine_preservation_power_cycle_duration_seconds_bucket",
	"machine_preservation_power_cycle_duration_seconds_count",
	"machine_preservation_power_cycle_duration_seconds_sum",
	"machine_preservation_power_cycle_deadline_timestamp_seconds",
	"machine_preservation_hosts_off",
	"machine_preservation_evidence_total",
	"machine_preservation_failures_total",
	"machine_preservation_failures_dropped_total",
	"machine_preservation_host_failure_timestamp_seconds",
	"machine_preservation_host_quarantines_total",
	"machine_preservation_transitions_total",
	"machine_preservation_validations_total",
	"machine_preservation_refusals_total",
	"machine_preservation_hold_lead_seconds_bucket",
	"machine_preservation_hold_lead_seconds_count",
	"machine_preservation_hold_lead_seconds_sum",
	"machine_preservation_errors_total",
	"machine_preservation_shoot_synced",
	"controller_runtime_reconcile_errors_total",
}

// dashboard is for Plutono in the control plane of a shoot, which its owner sees as well. The one for all shoots of a seed
// is in the chart of the extension.
//
//go:embed dashboards/machine-preservation.json
var dashboard string

// deployMonitoring has the container scraped and watched. The pod is that of machine-controller-manager, and so is its
// Service, which knows neither the port nor a reason to be changed: the container gets one of its own. Its labels must
// not be those of the pod, by which the ServiceMonitor of machine-controller-manager finds Services.
func (p *preservationController) deployMonitoring(ctx context.Context) error {
	service := &corev1.Service{ObjectMeta: p.meta()}
	if _, err := controllerutils.GetAndCreateOrMergePatch(ctx, p.client, service, func() error {
		metav1.SetMetaDataLabel(&service.ObjectMeta, v1beta1constants.LabelApp, Name)
		if err := gardenerutils.InjectNetworkPolicyAnnotationsForScrapeTargets(service, networkingv1.NetworkPolicyPort{
			Port:     new(intstr.FromInt32(portMetrics)),
			Protocol: new(corev1.ProtocolTCP),
		}); err != nil {
			return err
		}
		service.Spec.Type = corev1.ServiceTypeClusterIP
		service.Spec.ClusterIP = corev1.ClusterIPNone
		service.Spec.Selector = map[string]string{
			v1beta1constants.LabelApp:  v1beta1constants.LabelKubernetes,
			v1beta1constants.LabelRole: v1beta1constants.DeploymentNameMachineControllerManager,
		}
		service.Spec.Ports = kubernetesutils.ReconcileServicePorts(service.Spec.Ports, []corev1.ServicePort{
			{Name: portNameMetrics, Protocol: corev1.ProtocolTCP, Port: portMetrics},
		}, corev1.ServiceTypeClusterIP)
		return nil
	}); err != nil {
		return fmt.Errorf("failed to deploy Service: %w", err)
	}

	serviceMonitor := p.serviceMonitor()
	labels := serviceMonitor.Labels
	if _, err := controllerutils.GetAndCreateOrMergePatch(ctx, p.client, serviceMonitor, func() error {
		serviceMonitor.Labels = labels
		serviceMonitor.Spec = monitoringv1.ServiceMonitorSpec{
			Selector:    metav1.LabelSelector{MatchLabels: map[string]string{v1beta1constants.LabelApp: Name}},
			SampleLimit: new(int64(sampleLimit)),
			Endpoints: []monitoringv1.Endpoint{{
				Port:                 portNameMetrics,
				MetricRelabelConfigs: monitoringutils.StandardMetricRelabelConfig(metrics...),
			}},
		}
		return nil
	}); err != nil {
		return fmt.Errorf("failed to deploy ServiceMonitor: %w", err)
	}

	prometheusRule := p.prometheusRule()
	if _, err := controllerutils.GetAndCreateOrMergePatch(ctx, p.client, prometheusRule, func() error {
		prometheusRule.Labels = labels
		prometheusRule.Spec = monitoringv1.PrometheusRuleSpec{Groups: []monitoringv1.RuleGroup{
			{Name: Name + ".rules", Rules: alerts()},
			{Name: Name + ".recording.rules", Rules: records()},
		}}
		return nil
	}); err != nil {
		return fmt.Errorf("failed to deploy PrometheusRule: %w", err)
	}

	dashboards := p.dashboards()
	if _, err := controllerutils.GetAndCreateOrMergePatch(ctx, p.client, dashboards, func() error {
		metav1.SetMetaDataLabel(&dashboards.ObjectMeta, v1beta1constants.LabelPrefixMonitoringDashboard+"shoot", "true")
		dashboards.Data = map[string]string{"machine-preservation.json": dashboard}
		return nil
	}); err != nil {
		return fmt.Errorf("failed to deploy dashboards: %w", err)
	}
	return nil
}

// records returns what leaves the Prometheus of a shoot: the aggregate Prometheus of the seed takes what is called
// shoot:<metric>:<operation>, and that of the garden takes it from there. It knows no pools: they would be too many.
func records() []monitoringv1.Rule {
	var rules []monitoringv1.Rule
	for _, rule := range []struct{ name, expr string }{
		{"machines:sum", `sum by (cause, phase) (machine_preservation_machines)`},
		{"share:sum", `sum(machine_preservation_share)`},
		{"share_used:sum", `sum(machine_preservation_share_used)`},
		{"drains:sum", `sum by (reason) (machine_preservation_drains)`},
		{"node_maintenances:sum", `sum by (phase) (machine_preservation_node_maintenances)`},
		{"hosts_off:sum", `sum(machine_preservation_hosts_off)`},
		{"power_cycles:increase1h", `sum by (outcome) (increase(machine_preservation_power_cycles_total[1h]))`},
		{"failures:increase1h", `sum by (reason, outcome) (increase(machine_preservation_failures_total[1h]))`},
		{"refusals:increase1h", `sum(increase(machine_preservation_refusals_total[1h]))`},
		{"errors:increase1h", `sum by (kind) (increase(machine_preservation_errors_total[1h]))`},
		{"holds_late:increase1h", `sum(increase(machine_preservation_hold_lead_seconds_bucket{` + tooLate + `}[1h]))`},
		{"shoot_synced:min", `min(machine_preservation_shoot_synced)`},
	} {
		rules = append(rules, monitoringv1.Rule{Record: "shoot:machine_preservation_" + rule.name, Expr: intstr.FromString(rule.expr)})
	}
	return rules
}

// alerts returns the alerts of a shoot. Each has an entry in docs/operations/troubleshooting.md.
func alerts() []monitoringv1.Rule {
	return []monitoringv1.Rule{
		// Where machine-controller-manager does not run either, nothing is lost, and Gardener's own alert tells.
		alert("MachinePreservationControllerDown", operators, "15m",
			`absent(up{job="machine-preservation-controller"} == 1) and on () up{job="machine-controller-manager"} == 1`,
			"Failed machines are not preserved.",
			"Prometheus cannot reach the container machine-preservation-controller in the pod of machine-controller-manager. "+
				"machine-controller-manager replaces machines that fail. Machines that are already preserved stay until their expiry.",
		),
		// A request that keeps failing is tried again after 17 minutes at most; by the preservation controller after 30 seconds.
		alert("MachinePreservationReconcileErrors", operators, "1h",
			`sum by (controller) (increase(controller_runtime_reconcile_errors_total{job="machine-preservation-controller"}[30m])) > 0`,
			"The machine-preservation-controller keeps failing.",
			"The controller {{ $labels.controller }} of the machine-preservation-controller has failed again and again for more than an hour. Its log says why.",
		),
		// What fails is tried again after 30 seconds at most.
		alert("MachinePreservationErrors", operators, "1h",
			`sum by (pool, kind) (increase(machine_preservation_errors_total[10m])) > 0`,
			"Decisions on machines cannot be carried out.",
			"Decisions on machines of worker pool {{ $labels.pool }} have not been carried out for more than an hour, because calls to the API server of the "+
				"{{ if eq $labels.kind \"node\" }}shoot{{ else }}seed{{ end }} fail. Other machines are not affected.",
		),
		// While the shoot's API server is away this is what is to be expected, and Gardener's own alert tells.
		alert("MachinePreservationShootNotSynced", operators, "15m",
			`machine_preservation_shoot_synced == 0 and on () max(up{job="kube-apiserver"}) == 1`,
			"The machine-preservation-controller does not see the current nodes of the shoot.",
			"The machine-preservation-controller can neither list nor watch the nodes, although the shoot's API server can be reached. Failed "+
				"machines are still preserved, but requests on nodes are not seen, and nodes are neither protected nor drained.",
		),
		alert("MachinePreservationHoldLate", operators, "",
			`increase(machine_preservation_hold_lead_seconds_bucket{`+tooLate+`}[1h]) > 0`,
			"A failing machine was preserved too late.",
			"A failing machine of worker pool {{ $labels.pool }} was preserved only after machine-controller-manager could already have terminated "+
				"it. The next failing machine may be lost.",
		),
		alert("MachinePreservationOverdue", operators, "5m",
			`time() - machine_preservation_expiry_timestamp_seconds > 900`,
			"The preservation of a machine does not end.",
			"Machine {{ $labels.machine }} is still preserved, although its preservation expired {{ $value | humanizeDuration }} ago.",
		),
		alert("MachinePreservationShareMissing", operators, "15m",
			`machine_preservation_share_used unless on (machine_deployment) machine_preservation_share`,
			"A MachineDeployment has no share of its worker pool's autoPreserveFailedMax.",
			"Failed machines of MachineDeployment {{ $labels.machine_deployment }} are not preserved automatically, because the MachineDeployment has no share.",
		),
		// It goes by itself when the node is drained: that may be seconds after the last strategy.
		alert("MachinePreservationNodeDrainTimeout", operators, "5m",
			`machine_preservation_node_drain_timeout == 1`,
			"A node is not drained in time for an update.",
			"machine-controller-manager has not drained node {{ $labels.node }} for an update of the workers within the "+
				"timeout of the drain strategies of the shoot. The condition NodeDrain of the node names the pods that are left.",
		),
		// As long as one after the other comes to an end, there may always be one.
		alert("MachinePreservationMaintenanceDrainStuck", everybody, "1h",
			`machine_preservation_node_maintenances{phase="Draining"} > 0`+
				` unless on (phase) increase(machine_preservation_node_maintenance_phase_duration_seconds_count[1h]) > 0`,
			"Nodes are not drained for their maintenance.",
			"{{ $value }} node(s) are being drained for a maintenance, and no such drain has ended for at least an hour. The condition Ready of "+
				"each NodeMaintenance names the pods that are in the way.",
		),
		// One that is deleted because of its time is gone within seconds.
		alert("MachinePreservationMaintenanceOverdue", everybody, "10m",
			`machine_preservation_node_maintenance_overdue == 1`,
			"A node is not given back after its maintenance.",
			"A NodeMaintenance has had node {{ $labels.node }} for longer than the maxNodeMaintenanceTime of the shoot, because its requestor has failed, an "+
				"additional requestor still works on the node, or an annotation prevents the deletion of the NodeMaintenance. The node takes a slot that other maintenances may wait for.",
		),
		// By then, the machines are no longer preserved, unless the shoot says so.
		alert("MachinePreservationMaintenanceUnfinished", everybody, "1d",
			`machine_preservation_node_maintenances{phase=~"Ready|RequestorFailed"} > 0`+
				` unless on (phase) increase(machine_preservation_node_maintenance_phase_duration_seconds_count[1d]) > 0`,
			"Nodes are not given back after their maintenance.",
			"{{ $value }} NodeMaintenance(s) are in phase {{ $labels.phase }}, and none has left that phase for at least a day. Their nodes are "+
				"cordoned and take slots that other maintenances may wait for.",
		),
		// What fails is tried again after 30 seconds at most.
		alert("MachinePreservationHostOff", operators, "5m",
			`time() - machine_preservation_power_cycle_deadline_timestamp_seconds > 300`,
			"A host is off for longer than its power cycle may take.",
			"Host {{ $labels.host }} of machine {{ $labels.machine }} is off, or still requested to be off, because of a power cycle that should have powered it on "+
				"{{ $value | humanizeDuration }} ago.",
		),
		// What fails is tried again after six minutes at most.
		alert("MachinePreservationEvidenceFailed", operators, "15m",
			`increase(machine_preservation_evidence_total{outcome="failed"}[10m]) > 0`,
			"Evidence of failed machines cannot be stored.",
			"For more than 15 minutes, evidence of a failed machine could not be stored. It is lost when the machine is gone. The Event "+
				"EvidenceFailed of the Machine says why.",
		),
		// An increase is rarely a whole number.
		alert("MachinePreservationPoolFailsAgain", everybody, "",
			`sum by (pool, reason) (increase(machine_preservation_failures_total{reason!="PowerCycled"}[1d])) > 2.5`,
			"Machines of a worker pool fail again and again for the same reason.",
			"{{ $value | printf \"%.0f\" }} machines of worker pool {{ $labels.pool }} failed within a day because of {{ $labels.reason }}. "+
				"To list them, run `kubectl preserve history --pool {{ $labels.pool }}`. To see why one of them failed, run `kubectl preserve why MACHINE`.",
		),
		// The pod may be another one by then, and with it the series.
		alert("MachinePreservationHostFailsAgain", operators, "",
			`changes(max by (host) (machine_preservation_host_failure_timestamp_seconds)[7d:5m]) >= 2`,
			"Machines on a host fail again and again.",
			"A machine on host {{ $labels.host }} failed, and {{ $value }} more failures on that host followed within a week. "+
				"To list them, run `kubectl preserve history --host {{ $labels.host }}`.",
		),
		alert("MachinePreservationNotValidated", everybody, "",
			`sum by (pool) (increase(machine_preservation_validations_total{outcome="NotValidated"}[1h])) > 0`,
			"A machine that came back was not validated.",
			"Nothing has proved within the timeout of its pool's validation that a machine of worker pool {{ $labels.pool }} works that came back. Its node takes "+
				"pods again. The Event MachineNotValidated names the machine.",
		),
		alert("MachinePreservationDrainBlocked", everybody, "30m",
			`machine_preservation_drains{reason="DrainBlocked"} > 0`,
			"A PodDisruptionBudget blocks the drain of a failed machine's node.",
			"Pods stay on the nodes of {{ $value }} failed and preserved machine(s) of worker pool {{ $labels.pool }}, because a PodDisruptionBudget "+
				"does not allow their eviction. The condition Preserved of the node(s) names the PodDisruptionBudget.",
		),
	}
}

var (
	operators = map[string]string{"severity": "warning", "type": "seed", "visibility": "operator"}
	everybody = map[string]string{"severity": "info", "type": "shoot", "visibility": "all"}
)

func alert(name string, audience map[string]string, pending monitoringv1.Duration, expr, summary, description string) monitoringv1.Rule {
	rule := monitoringv1.Rule{
		Alert:  name,
		Expr:   intstr.FromString(expr),
		Labels: map[string]string{"service": Name},
		Annotations: map[string]string{
			"summary":     summary,
			"description": description,
			"runbook_url": runbooks + "#" + strings.ToLower(name),
		},
	}
	for key, value := range audience {
		rule.Labels[key] = value
	}
	if pending != "" {
		rule.For = &pending
	}
	return rule
}

func (p *preservationController) serviceMonitor() *monitoringv1.ServiceMonitor {
	return &monitoringv1.ServiceMonitor{ObjectMeta: monitoringutils.ConfigObjectMeta(Name, p.namespace, shoot.Label)}
}

func (p *preservationController) prometheusRule() *monitoringv1.PrometheusRule {
	return &monitoringv1.PrometheusRule{ObjectMeta: monitoringutils.ConfigObjectMeta(Name, p.namespace, shoot.Label)}
}

func (p *preservationController) dashboards() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: Name + "-dashboards", Namespace: p.namespace}}
}
