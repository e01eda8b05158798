{{- define "outbox-relay.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "outbox-relay.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "outbox-relay.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "outbox-relay.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What selects the relay's pods: they are the component relay, and nothing here may ever change. */}}
{{- define "outbox-relay.selector" -}}
app.kubernetes.io/name: {{ include "outbox-relay.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: relay
{{- end -}}

{{/* The labels of a thing: (list . COMPONENT). */}}
{{- define "outbox-relay.labels" -}}
{{- $ := index . 0 -}}
helm.sh/chart: {{ printf "%s-%s" $.Chart.Name $.Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: {{ include "outbox-relay.name" $ }}
app.kubernetes.io/instance: {{ $.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
app.kubernetes.io/version: {{ $.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $.Release.Service }}
{{- end -}}

{{- define "outbox-relay.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "outbox-relay.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "outbox-relay.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "outbox-relay.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532 # it reads the secrets
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "outbox-relay.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* The variables for a database: (list . DATABASE). */}}
{{- define "outbox-relay.databaseEnv" -}}
{{- $ := index . 0 -}}
{{- $database := index . 1 -}}
- name: DATABASE_URL
  value: {{ $database.url | quote }}
{{- if $database.passwordSecret.name }}
- name: RELAY_DATABASE_PASSWORD_FILE
  value: /etc/outbox-relay/database/{{ $database.passwordSecret.key }}
{{- end }}
{{- if $.Values.database.rootCertConfigMap.name }}
- name: PGSSLROOTCERT
  value: /etc/outbox-relay/ca/{{ $.Values.database.rootCertConfigMap.key }}
{{- end }}
{{- range $name, $value := $.Values.settings }}
- name: {{ $name }}
  {{- /* Every number is a float here, and a large one would be written with an exponent. */}}
  value: {{ ternary (int64 $value) $value (kindIs "float64" $value) | toString | quote }}
{{- end }}
{{- end -}}

{{- define "outbox-relay.databaseVolumeMounts" -}}
{{- $ := index . 0 -}}
{{- $database := index . 1 -}}
{{- if $database.passwordSecret.name }}
- name: database
  mountPath: /etc/outbox-relay/database
  readOnly: true
{{- end }}
{{- if $.Values.database.rootCertConfigMap.name }}
- name: ca
  mountPath: /etc/outbox-relay/ca
  readOnly: true
{{- end }}
{{- end -}}

{{/* Whole folders: a file that is mounted by itself would never change. */}}
{{- define "outbox-relay.databaseVolumes" -}}
{{- $ := index . 0 -}}
{{- $database := index . 1 -}}
{{- if $database.passwordSecret.name }}
- name: database
  secret:
    secretName: {{ $database.passwordSecret.name }}
    defaultMode: 0440
{{- end }}
{{- if $.Values.database.rootCertConfigMap.name }}
- name: ca
  configMap:
    name: {{ $.Values.database.rootCertConfigMap.name }}
{{- end }}
{{- end -}}

{{/* What the relay and the doctor, who looks with its eyes, are given. */}}
{{- define "outbox-relay.env" -}}
{{ include "outbox-relay.databaseEnv" (list . .Values.database) }}
{{- with .Values.database.replicationUrl }}
- name: RELAY_REPLICATION_URL
  value: {{ . | quote }}
{{- end }}
- name: INFRAI_API_KEY_FILE
  value: /etc/outbox-relay/queue/{{ .Values.queue.apiKeySecret.key }}
{{- with .Values.queue.baseUrl }}
- name: INFRAI_BASE_URL
  value: {{ . | quote }}
{{- end }}
{{- if .Values.adminTokenSecret.name }}
- name: RELAY_ADMIN_TOKEN_FILE
  value: /etc/outbox-relay/admin/{{ .Values.adminTokenSecret.key }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "outbox-relay.volumeMounts" -}}
{{- include "outbox-relay.databaseVolumeMounts" (list . .Values.database) }}
- name: queue
  mountPath: /etc/outbox-relay/queue
  readOnly: true
{{- if .Values.adminTokenSecret.name }}
- name: admin
  mountPath: /etc/outbox-relay/admin
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "outbox-relay.volumes" -}}
{{- include "outbox-relay.databaseVolumes" (list . .Values.database) }}
- name: queue
  secret:
    secretName: {{ .Values.queue.apiKeySecret.name }}
    defaultMode: 0440
{{- if .Values.adminTokenSecret.name }}
- name: admin
  secret:
    secretName: {{ .Values.adminTokenSecret.name }}
    defaultMode: 0440
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
