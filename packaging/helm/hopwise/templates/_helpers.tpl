{{- define "hopwise.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "hopwise.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "hopwise.labels" -}}
{{ include "hopwise.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "hopwise.secret" -}}
{{ .Values.existingSecret | default (printf "%s-config" (include "hopwise.name" .)) }}
{{- end }}

{{/* What keeps something on disk: a store, or cursors. */}}
{{- define "hopwise.keeps" -}}
{{- if and .Values.persistence.enabled (ne .Values.role "console") }}true{{ end }}
{{- end }}

{{/* A console and an outlet have a configuration of their own, and what only a collector has is refused. */}}
{{- define "hopwise.role" -}}
{{- if ne .Values.role "collector" }}
{{- if and (not .Values.existingSecret) (not (contains (printf "[%s]" .Values.role) .Values.config)) }}{{ fail (printf "config: a role of %s needs a configuration with [%s]; pass it by --set-file config=%s.toml, see docs/how-to/fleet.md" .Values.role .Values.role .Values.role) }}{{ end }}
{{- if or .Values.hostNetwork .Values.xdp (eq .Values.kind "DaemonSet") }}{{ fail (printf "role: hostNetwork, xdp and a DaemonSet are for collectors; leave them out for the role %s" .Values.role) }}{{ end }}
{{- if and (eq .Values.role "outlet") (gt (int .Values.replicas) 1) }}{{ fail "replicas: an outlet has one; install a release for each part of the partitions, with its own `share`" }}{{ end }}
{{- end }}
{{- .Values.role }}
{{- end }}

{{- define "hopwise.ofNode" -}}
{{- if or .Values.hostNetwork .Values.xdp }}true{{ end }}
{{- end }}

{{/* What the default configuration refuses to leave open. */}}
{{- define "hopwise.allow" -}}
{{- if not .Values.allow }}{{ fail "allow: name the addresses or networks of the switches, such as --set 'allow={10.0.0.0/8}'; reports are not authenticated" }}{{ end }}
{{- toJson .Values.allow }}
{{- end }}

{{- define "hopwise.tls" -}}
{{- if .Values.api.tls }}
{{- required "api.tlsSecret: name the Secret with tls.crt and tls.key, for api.tls" .Values.api.tlsSecret }}
{{- else if include "hopwise.ofNode" . }}
{{- fail "api.tls: with hostNetwork or xdp the API is open at the node's addresses and would take the token in clear text; set api.tls=true and api.tlsSecret, or a `config` of your own" }}
{{- end }}
{{- end }}

{{- define "hopwise.pod" -}}
metadata:
  labels:
    {{- include "hopwise.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  annotations:
    # A changed configuration replaces the pods. Its token must be random: whoever reads pods can try guesses with this.
    checksum/config: {{ if .Values.existingSecret }}{{ sha256sum .Values.existingSecret }}{{ else }}{{ tpl .Values.config . | sha256sum }}{{ end }}
    {{- with .Values.podAnnotations }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- if include "hopwise.ofNode" . }}
  hostNetwork: true
  dnsPolicy: ClusterFirstWithHostNet
  {{- end }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity: {{ toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- if not .Values.xdp }}
    runAsNonRoot: true
    {{- end }}
    runAsUser: {{ ternary 0 65532 .Values.xdp }}
    runAsGroup: {{ ternary 0 65532 .Values.xdp }}
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: hopwise
      image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [run, --config, /etc/hopwise/config/hopwise.toml]
      securityContext:
        readOnlyRootFilesystem: true
        allowPrivilegeEscalation: false
        capabilities:
          drop: [ALL]
          {{- if .Values.xdp }}
          # hopwise drops them when its inputs are open.
          add: [BPF, NET_ADMIN, NET_RAW, IPC_LOCK]
          {{- end }}
      ports:
        {{- if eq .Values.role "collector" }}
        - {name: reports, containerPort: {{ .Values.ports.reports }}, protocol: UDP}
        - {name: aggregates, containerPort: {{ .Values.ports.aggregates }}, protocol: UDP}
        {{- end }}
        - {name: api, containerPort: {{ .Values.ports.api }}, protocol: TCP}
      # /healthz is 503 while nothing can be stored, as on a full disk; a restart would not help then.
      livenessProbe:
        tcpSocket: {port: api}
        periodSeconds: 10
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /healthz, port: api, scheme: {{ ternary "HTTPS" "HTTP" .Values.api.tls }}}
        periodSeconds: 5
      # The indexes of a file that a crash left are built before hopwise answers.
      startupProbe:
        tcpSocket: {port: api}
        periodSeconds: 2
        failureThreshold: 150
      resources: {{ toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        - {name: config, mountPath: /etc/hopwise/config, readOnly: true}
        {{- if .Values.api.tlsSecret }}
        - {name: tls, mountPath: /etc/hopwise/tls, readOnly: true}
        {{- end }}
        - {name: store, mountPath: /var/lib/hopwise}
        - {name: tmp, mountPath: /tmp}
  volumes:
    - name: config
      secret: {secretName: {{ include "hopwise.secret" . }}, defaultMode: 0440}
    {{- if .Values.api.tlsSecret }}
    - name: tls
      secret: {secretName: {{ .Values.api.tlsSecret }}, defaultMode: 0440}
    {{- end }}
    # Large SQL queries.
    - name: tmp
      emptyDir: {sizeLimit: 2Gi}
    {{- if not (include "hopwise.keeps" .) }}
    - name: store
      emptyDir: {}
    {{- else if eq .Values.kind "DaemonSet" }}
    - name: store
      hostPath: {path: {{ .Values.persistence.hostPath }}, type: DirectoryOrCreate}
    {{- end }}
{{- end }}
