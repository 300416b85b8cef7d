{{- /*
SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors

SPDX-License-Identifier: Apache-2.0
*/ -}}

{{- define "name" -}}
gardener-extension-machine-preservation-admission
{{- end -}}

{{- /* Names of cluster-scoped objects. */ -}}
{{- define "globalName" -}}
extensions.gardener.cloud:extension-machine-preservation:admission
{{- end -}}

{{- define "labels" -}}
app.kubernetes.io/name: {{ include "name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
