// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// +k8s:deepcopy-gen=package
// +k8s:defaulter-gen=TypeMeta
// +groupName=config.machine-preservation.extensions.gardener.cloud

// Package v1alpha1 is the first version of the configuration of the extension's own process.
package v1alpha1

// GroupName is the API group of the component configuration.
const GroupName = "config.machine-preservation.extensions.gardener.cloud"
