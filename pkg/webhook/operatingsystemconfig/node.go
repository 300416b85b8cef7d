// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package operatingsystemconfig

import (
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

const (
	journalSettingsPath = "/etc/systemd/journald.conf.d/90-machine-preservation.conf"
	journalUnitName     = "machine-preservation-journal.service"
)

// journalSettings keeps the journal on disk. Who powers a host off takes what has not been synchronized, which is 5 minutes by default.
func journalSettings() extensionsv1alpha1.File {
	return extensionsv1alpha1.File{
		Path:        journalSettingsPath,
		Permissions: new(uint32(0o644)),
		Content: extensionsv1alpha1.FileContent{Inline: &extensionsv1alpha1.FileContentInline{Data: `[Journal]
Storage=persistent
SystemMaxUse=1G
SyncIntervalSec=30s
`}},
	}
}

// journalUnit restarts journald when gardener-node-agent has written its settings, and at no other time: it is not wanted by anything
// that is started at boot. It is a unit of its own, as gardener-node-agent would remove the drop-ins of systemd-journald.service with
// one of that name. It never fails, because nothing after it would be applied.
func journalUnit() extensionsv1alpha1.Unit {
	return extensionsv1alpha1.Unit{
		Name:    journalUnitName,
		Command: new(extensionsv1alpha1.CommandRestart),
		Content: new(`[Unit]
Description=Put the journal's settings for evidence of failed machines into effect
[Service]
Type=oneshot
ExecStart=-/bin/sh -c 'systemctl restart systemd-journald.service; journalctl --flush'
`),
		FilePaths: []string{journalSettingsPath},
	}
}

// kernelUnit says what the kernel says, in the name of a service: the kubelet gives out the journals of services only. What a crash
// has left in pstore comes first, once after each boot. systemd-pstore moves it to /var. Of kernel messages, --kernel takes only those
// of the kernel's own, so that a journald that forwards all to the kernel does not repeat itself without end.
func kernelUnit() extensionsv1alpha1.Unit {
	return extensionsv1alpha1.Unit{
		Name:    v1alpha1.KernelLogService + ".service",
		Command: new(extensionsv1alpha1.CommandRestart),
		Enable:  new(true),
		Content: new(`[Unit]
Description=Messages of the kernel for evidence of failed machines
After=systemd-pstore.service
[Service]
RuntimeDirectory=` + v1alpha1.KernelLogService + `
RuntimeDirectoryPreserve=yes
ExecStartPre=-/bin/sh -c 'mkdir /run/` + v1alpha1.KernelLogService + `/pstore && find /sys/fs/pstore /var/lib/systemd/pstore -type f -name "dmesg*" -mtime -1 -exec tail -c 65536 {} + | tail -c 262144'
ExecStart=/bin/sh -c 'exec dmesg --follow --kernel --time-format=iso'
Restart=always
RestartSec=60
[Install]
WantedBy=multi-user.target
`),
	}
}
