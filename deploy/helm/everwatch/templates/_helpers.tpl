{{- define "everwatch.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels that select pods: they never change, because a StatefulSet does not accept another selector. */}}
{{- define "everwatch.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "everwatch.labels" -}}
{{ include "everwatch.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | trunc 63 | quote }}
app.kubernetes.io/part-of: everwatch
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "everwatch.manager.selector" -}}
{{ include "everwatch.selector" . }}
app.kubernetes.io/component: manager
{{- end -}}

{{- define "everwatch.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "everwatch.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "everwatch.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The Secret with the URLs, and the keys in it. */}}
{{- define "everwatch.secret" -}}
{{- .Values.existingSecret | default (include "everwatch.fullname" .) -}}
{{- end -}}

{{- define "everwatch.secretKeys" -}}
{{- if .Values.existingSecret -}}
{{- toJson .Values.secretKeys -}}
{{- else -}}
{{- $management := ternary "management-url" "" (ne .Values.secret.managementUrl "") -}}
{{- dict "brokerUrl" "broker-url" "storeUrl" "store-url" "managementUrl" $management | toJson -}}
{{- end -}}
{{- end -}}

{{/* The Secret with the bootstrap token; empty: there is none. */}}
{{- define "everwatch.bootstrapSecret" -}}
{{- if .Values.bootstrapToken.existingSecret -}}
{{- .Values.bootstrapToken.existingSecret -}}
{{- else if .Values.bootstrapToken.create -}}
{{- printf "%s-bootstrap-token" (include "everwatch.fullname" .) -}}
{{- end -}}
{{- end -}}

{{/* A pool with the values that it does not set itself: JSON. Call it with (list $ KEY POOL). */}}
{{- define "everwatch.pool" -}}
{{- $root := index . 0 -}}
{{- $key := index . 1 -}}
{{- $pool := mustMergeOverwrite (deepCopy $root.Values.poolDefaults) (deepCopy (index . 2 | default dict)) -}}
{{- $_ := set $pool "key" $key -}}
{{- $_ := set $pool "pool" ($pool.pool | default $key) -}}
{{- $_ := set $pool "fullname" (printf "%s-service-%s" (include "everwatch.fullname" $root) $key) -}}
{{- if gt (len $pool.fullname) 52 -}}
{{- fail (printf "pools.%s: the name of its StatefulSet, %s, has more than the 52 characters that Kubernetes allows: shorten fullnameOverride or the key" $key $pool.fullname) -}}
{{- end -}}
{{- $grace := int (default (add $pool.drainTimeoutSeconds 10) $pool.terminationGracePeriodSeconds) -}}
{{- if le $grace (int $pool.drainTimeoutSeconds) -}}
{{- fail (printf "pools.%s.terminationGracePeriodSeconds: %d must be more than drainTimeoutSeconds, %d, or Kubernetes kills a service while it hands over its observers" $key $grace (int $pool.drainTimeoutSeconds)) -}}
{{- end -}}
{{- $_ := set $pool "terminationGracePeriodSeconds" $grace -}}
{{- if and (ne (toString $pool.capacity) "auto") (gt (int $pool.weightMax) (int $pool.capacity)) -}}
{{- fail (printf "pools.%s.weightMax: %d must be at most the capacity, %d" $key (int $pool.weightMax) (int $pool.capacity)) -}}
{{- end -}}
{{- if $pool.autoscaling.enabled -}}
{{- if ge (int $pool.replicas) 0 -}}
{{- fail (printf "pools.%s.replicas: set it to -1, because the autoscaler sets the number of services" $key) -}}
{{- end -}}
{{- if $pool.single -}}
{{- fail (printf "pools.%s.autoscaling.enabled: set it to false: a single pool runs on one service, so more services add no slots" $key) -}}
{{- end -}}
{{- if gt $grace 1800 -}}
{{- fail (printf "pools.%s.terminationGracePeriodSeconds: %d must be at most 1800 with autoscaling: Kubernetes allows no longer period between two removals of a service" $key $grace) -}}
{{- end -}}
{{- if not $pool.autoscaling.tokenSecret.name -}}
{{- fail (printf "pools.%s.autoscaling.tokenSecret.name: name a Secret with a token whose role has the verb pools:read" $key) -}}
{{- end -}}
{{- if gt (int $pool.autoscaling.minReplicas) (int $pool.autoscaling.maxReplicas) -}}
{{- fail (printf "pools.%s.autoscaling.minReplicas: %d must be at most maxReplicas, %d" $key (int $pool.autoscaling.minReplicas) (int $pool.autoscaling.maxReplicas)) -}}
{{- end -}}
{{- if not $pool.autoscaling.targetSlots -}}
{{- if eq (toString $pool.capacity) "auto" -}}
{{- fail (printf "pools.%s.autoscaling.targetSlots: set the slots of each service: the chart cannot derive them from the capacity \"auto\"" $key) -}}
{{- end -}}
{{- $_ := set $pool.autoscaling "targetSlots" (max 1 (div (mul (sub (int $pool.capacity) (sub (int $pool.weightMax) 1)) 8) 10)) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $pool "memoryLimit" ($pool.memoryLimit | default (include "everwatch.memoryLimit" $pool)) -}}
{{- toJson $pool -}}
{{- end -}}

{{/* Seven eighths of the memory limit of a pool, in MiB; off: it has none in Mi or Gi, or less than a service may have. */}}
{{- define "everwatch.memoryLimit" -}}
{{- $limit := dig "limits" "memory" "" .resources | toString -}}
{{- $mebibytes := 0 -}}
{{- if regexMatch "^[0-9]+Mi$" $limit -}}
{{- $mebibytes = trimSuffix "Mi" $limit | int -}}
{{- else if regexMatch "^[0-9]+Gi$" $limit -}}
{{- $mebibytes = trimSuffix "Gi" $limit | int | mul 1024 -}}
{{- end -}}
{{- $share := div (mul $mebibytes 7) 8 -}}
{{- if ge $share 64 -}}{{ printf "%dMiB" $share }}{{- else -}}off{{- end -}}
{{- end -}}

{{- define "everwatch.pool.selector" -}}
{{ include "everwatch.selector" (index . 0) }}
app.kubernetes.io/component: service
everwatch-pool: {{ index . 1 }}
{{- end -}}

{{- define "everwatch.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "everwatch.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: ["ALL"] }
{{- end -}}

{{/* Call it with (dict "constraints" … "selector" …). */}}
{{- define "everwatch.topologySpread" -}}
{{- if kindIs "slice" .constraints -}}
{{- toYaml .constraints -}}
{{- else -}}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- $.selector | nindent 6 }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* Where pods run: call it with `manager` or a pool. */}}
{{- define "everwatch.scheduling" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "everwatch.logEnv" -}}
- { name: EVERWATCH_LOG__FORMAT, value: {{ .Values.log.format | quote }} }
{{- with .Values.log.filter }}
- { name: EVERWATCH_LOG__FILTER, value: {{ . | quote }} }
{{- end }}
{{- end -}}
