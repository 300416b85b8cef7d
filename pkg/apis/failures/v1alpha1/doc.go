// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// +k8s:deepcopy-gen=package
// +groupName=machine-preservation.extensions.gardener.cloud

// Package v1alpha1 is the API in which shoot owners read which of their machines have failed, and how these failures ended.
package v1alpha1

// GroupName is the API group.
const GroupName = "machine-preservation.extensions.gardener.cloud"
