// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package validator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/providerconfig"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/share"
)

// Shoot validates the provider configuration in Shoots. An entry that is disabled is not looked at: nobody reads its
// configuration, and gardener-apiserver does not label the Shoot for it.
type Shoot struct {
	// Limits are what operators allow. The owner is warned of what exceeds it, and evidence that they do not allow is refused. No
	// other field is read. It may be nil.
	Limits *configv1alpha1.ControllerConfiguration
}

// ValidateCreate returns what is wrong with a new Shoot, or else what its owner should know.
func (s Shoot) ValidateCreate(_ context.Context, shoot *gardencorev1beta1.Shoot) (admission.Warnings, error) {
	return s.validate(shoot, nil)
}

// ValidateUpdate returns what is wrong with a changed Shoot, or else what its owner should know. Nothing is wrong if
// neither the configuration nor what it is validated against has changed: an owner, or Gardener's own maintenance, must be
// able to change the rest of a Shoot that is older than a rule. For the same reason, evidence that operators no longer allow, or
// not for so long, is refused only if the Shoot did not request it before.
func (s Shoot) ValidateUpdate(_ context.Context, oldShoot, newShoot *gardencorev1beta1.Shoot) (admission.Warnings, error) {
	if newShoot.DeletionTimestamp != nil || apiequality.Semantic.DeepEqual(subjectOf(oldShoot), subjectOf(newShoot)) {
		return nil, nil
	}
	return s.validate(newShoot, evidenceOf(oldShoot))
}

// ValidateDelete returns nothing: the webhook is not registered for it.
func (Shoot) ValidateDelete(context.Context, *gardencorev1beta1.Shoot) (admission.Warnings, error) {
	return nil, nil
}

func (s Shoot) validate(shoot *gardencorev1beta1.Shoot, before *preservation.Evidence) (admission.Warnings, error) {
	index := enabled(shoot)
	if index < 0 {
		return nil, nil
	}

	extensionPath := field.NewPath("spec", "extensions").Index(index)
	pools := share.PoolsOfShoot(shoot.Spec.Provider.Workers)
	config, err := providerconfig.ReadProviderConfig(shoot.Spec.Extensions[index].ProviderConfig, pools, extensionPath.Child("providerConfig"))
	if err != nil {
		return nil, refusal(shoot, err)
	}
	providerConfigPath := extensionPath.Child("providerConfig")
	if err := forbiddenEvidence(config, s.Limits, providerConfigPath); err != nil && before == nil {
		return nil, refusal(shoot, err)
	}
	if err := forbiddenRetention(config, s.Limits, providerConfigPath); err != nil && (before == nil || config.Evidence.Retention.Duration > before.Retention.Duration) {
		return nil, refusal(shoot, err)
	}
	return warnings(shoot.Status.Gardener.Version, v1beta1helper.IsShootSelfHosted(shoot.Spec.Provider.Workers), pools, config, s.Limits, extensionPath), nil
}

// enabled returns the index of the extension in the Shoot's specification, or -1. gardener-apiserver sees to it that a type
// is there once at most.
func enabled(shoot *gardencorev1beta1.Shoot) int {
	return slices.IndexFunc(shoot.Spec.Extensions, func(extension gardencorev1beta1.Extension) bool {
		return extension.Type == v1alpha1.ExtensionType && !ptr.Deref(extension.Disabled, false)
	})
}

// evidenceOf returns what evidence a Shoot asks for, as far as its configuration is valid, nil for none.
func evidenceOf(shoot *gardencorev1beta1.Shoot) *preservation.Evidence {
	index := enabled(shoot)
	if index < 0 {
		return nil
	}
	config, err := providerconfig.ReadProviderConfig(shoot.Spec.Extensions[index].ProviderConfig, share.PoolsOfShoot(shoot.Spec.Provider.Workers), field.NewPath("providerConfig"))
	if err != nil || config.Evidence == nil || !*config.Evidence.Enabled {
		return nil
	}
	return config.Evidence
}

// forbiddenEvidence returns an error if evidence is asked for that operators do not allow, nil if nobody knows whether they do.
func forbiddenEvidence(config *preservation.MachinePreservationConfig, limits *configv1alpha1.ControllerConfiguration, fldPath *field.Path) error {
	if config.Evidence == nil || !*config.Evidence.Enabled || limits == nil || limits.Evidence.IsEnabled() {
		return nil
	}
	return field.Invalid(fldPath.Child("evidence", "enabled"), true, "must be false, because the operators have not enabled evidence")
}

// forbiddenRetention returns an error if evidence is asked for that is to be kept for longer than operators allow.
func forbiddenRetention(config *preservation.MachinePreservationConfig, limits *configv1alpha1.ControllerConfiguration, fldPath *field.Path) error {
	isAsked := config.Evidence != nil && *config.Evidence.Enabled
	if !isAsked || limits == nil || !limits.Evidence.IsEnabled() || limits.Evidence.MaxRetention == nil {
		return nil
	}
	retention, longest := config.Evidence.Retention.Duration, limits.Evidence.MaxRetention.Duration
	if retention <= longest {
		return nil
	}
	return field.Invalid(fldPath.Child("evidence", "retention"), retention.String(), fmt.Sprintf("must be at most %s, because the operators do not allow more", longest))
}

// refusal makes errors about fields a status with a cause for each of them, which kubectl prints on lines of their own.
func refusal(shoot *gardencorev1beta1.Shoot, err error) error {
	var allErrs field.ErrorList
	for _, one := range utilerrors.Flatten(utilerrors.NewAggregate([]error{err})).Errors() {
		fieldErr, ok := errors.AsType[*field.Error](one)
		if !ok {
			return err
		}
		allErrs = append(allErrs, fieldErr)
	}
	return apierrors.NewInvalid(gardencorev1beta1.Kind("Shoot"), shoot.Name, allErrs)
}

// subject is all of a Shoot that errors and warnings depend on. MatchConditions have the same in CEL.
type subject struct {
	Enabled bool
	Config  *runtime.RawExtension
	Pools   []share.Pool
}

func subjectOf(shoot *gardencorev1beta1.Shoot) subject {
	s := subject{Pools: share.PoolsOfShoot(shoot.Spec.Provider.Workers)}
	if index := enabled(shoot); index >= 0 {
		s.Enabled, s.Config = true, shoot.Spec.Extensions[index].ProviderConfig
	}
	return s
}
