// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package operatingsystemconfig

import (
	"context"

	"github.com/Masterminds/semver/v3"
	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	extensionscontextwebhook "github.com/gardener/gardener/extensions/pkg/webhook/context"
	"github.com/gardener/gardener/extensions/pkg/webhook/controlplane/genericmutator"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/component/extensions/operatingsystemconfig/original/components/kubelet"
	oscutils "github.com/gardener/gardener/pkg/component/extensions/operatingsystemconfig/utils"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/controlplane"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/providerconfig"
)

// NewMutator returns a mutator of what runs on the nodes of shoots whose evidence is to have logs of nodes. gardenlet writes an
// OperatingSystemConfig as a whole whenever it reconciles a Shoot, after the Extension: what nobody adds any more is gone.
func NewMutator(mgr manager.Manager, reader client.Reader) extensionswebhook.Mutator {
	codec := oscutils.NewFileContentInlineCodec()
	return &mutator{
		Mutator: genericmutator.NewMutator(mgr, &ensurer{}, oscutils.NewUnitSerializer(), kubelet.NewConfigCodec(codec), codec, logf.Log.WithName(WebhookName+"-webhook")),
		reader:  reader,
	}
}

type mutator struct {
	extensionswebhook.Mutator
	reader client.Reader
}

// Mutate leaves alone what gardener-node-agent is started with, because the ensurer has nothing for that: it applies the other one as soon as
// it runs.
func (m *mutator) Mutate(ctx context.Context, newObj, oldObj client.Object) error {
	extension, err := controlplane.FindExtension(ctx, m.reader, newObj.GetNamespace())
	if err != nil || extension == nil {
		return err
	}
	evidence, err := providerconfig.ReadEvidence(extension)
	if err != nil || evidence == nil || !*evidence.NodeLogs {
		return err
	}
	return m.Mutator.Mutate(ctx, newObj, oldObj)
}

// featureNodeLogQuery is the feature gate of queries of logs. A kubelet that does not know it does not start with it, and one that
// has it off does not start with enableSystemLogQuery.
const featureNodeLogQuery = "NodeLogQuery"

var (
	// The kubelet knows the feature gate from 1.27 on, and has it locked to true from 1.36 on. After that, it will forget it.
	firstNodeLogQuery  = semver.MustParse("1.27.0")
	lockedNodeLogQuery = semver.MustParse("1.36.0")
)

type ensurer struct {
	genericmutator.NoopEnsurer
}

// EnsureKubeletConfiguration has the kubelet answer queries of logs, unless it cannot, or the Shoot has the feature off.
func (*ensurer) EnsureKubeletConfiguration(_ context.Context, _ extensionscontextwebhook.GardenContext, version *semver.Version, config, _ *kubeletconfigv1beta1.KubeletConfiguration) error {
	enabled, isSet := config.FeatureGates[featureNodeLogQuery]
	if version.LessThan(firstNodeLogQuery) || isSet && !enabled {
		return nil
	}
	config.EnableSystemLogHandler = new(true)
	config.EnableSystemLogQuery = new(true)
	if !isSet && version.LessThan(lockedNodeLogQuery) {
		if config.FeatureGates == nil {
			config.FeatureGates = map[string]bool{}
		}
		config.FeatureGates[featureNodeLogQuery] = true
	}
	return nil
}

// EnsureAdditionalFiles adds the settings of the journal.
func (*ensurer) EnsureAdditionalFiles(_ context.Context, _ extensionscontextwebhook.GardenContext, files, _ *[]extensionsv1alpha1.File) error {
	*files = extensionswebhook.EnsureFileWithPath(*files, journalSettings())
	return nil
}

// EnsureAdditionalUnits adds what puts these settings into effect, and the kernel's messages where a kubelet can find them.
func (*ensurer) EnsureAdditionalUnits(_ context.Context, _ extensionscontextwebhook.GardenContext, units, _ *[]extensionsv1alpha1.Unit) error {
	for _, unit := range []extensionsv1alpha1.Unit{journalUnit(), kernelUnit()} {
		*units = extensionswebhook.EnsureUnitWithName(*units, unit)
	}
	return nil
}
