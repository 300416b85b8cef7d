// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	extensionscmdwebhook "github.com/gardener/gardener/extensions/pkg/webhook/cmd"
	"github.com/spf13/pflag"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
)

// Hosts returns the API servers of the garden and of the runtime cluster that a command line means.
func Hosts(arguments ...string) (garden, runtime string, err error) {
	opts := newOptions(extensionscmdwebhook.NewSwitchOptions(), &configv1alpha1.ControllerConfiguration{})
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	opts.AddFlags(flags)
	if err := flags.Parse(arguments); err != nil {
		return "", "", err
	}
	if err := opts.Complete(); err != nil {
		return "", "", err
	}
	return opts.garden.Completed().Config.Host, opts.runtime.Completed().Config.Host, nil
}

// Limits returns what operators allow by the arguments.
func Limits(arguments ...string) (*configv1alpha1.ControllerConfiguration, error) {
	opts := &limitOptions{limits: &configv1alpha1.ControllerConfiguration{}}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	opts.AddFlags(flags)
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	return opts.limits, opts.Complete()
}
