// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// +k8s:deepcopy-gen=package

// Package preservation is the internal version of the API with which shoot owners configure the preservation of
// machines.
package preservation

// GroupName is the API group of the extension's provider configuration.
const GroupName = "machine-preservation.extensions.gardener.cloud"
