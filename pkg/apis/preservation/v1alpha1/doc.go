// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// +k8s:deepcopy-gen=package
// +k8s:defaulter-gen=TypeMeta
// +k8s:conversion-gen=github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation
// +groupName=machine-preservation.extensions.gardener.cloud

// Package v1alpha1 is the first version of the API with which shoot owners configure the preservation of machines.
package v1alpha1

// ExtensionType is the type of the extension in Shoots and of its Extension resources.
const ExtensionType = "machine-preservation"

// GroupName is the API group of the extension's provider configuration, and the prefix of its annotations.
const GroupName = "machine-preservation.extensions.gardener.cloud"
