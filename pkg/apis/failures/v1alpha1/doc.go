// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// +k8s:deepcopy-gen=package
// +groupName=machine-preservation.extensions.gardener.cloud

// Package v1alpha1 is the API in which the owner of a shoot reads which of its machines have failed, and what has become of them.
package v1alpha1

// GroupName is the API group.
const GroupName = "machine-preservation.extensions.gardener.cloud"
