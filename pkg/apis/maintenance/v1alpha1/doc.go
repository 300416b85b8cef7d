// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// +k8s:deepcopy-gen=package
// +groupName=maintenance.nvidia.com

// Package v1alpha1 is the API through which somebody asks for a node to work on. Its group, kinds, fields and keys are those
// of the NVIDIA maintenance operator, so that requestors which exist need not be changed.
package v1alpha1

// GroupName is the API group.
const GroupName = "maintenance.nvidia.com"
