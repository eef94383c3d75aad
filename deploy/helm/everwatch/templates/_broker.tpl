{{/* The names of the pools whose queues managers create, comma-separated. Empty: the default of the program. A single pool is
left out: `everwatch pool create NAME --single` creates its queue, which differs from that of other pools. */}}
{{- define "everwatch.managerPools" -}}
{{- $own := false -}}
{{- $names := .Values.manager.pools -}}
{{- range $key, $given := .Values.pools -}}
{{- $pool := include "everwatch.pool" (list $ $key $given) | fromJson -}}
{{- if $pool.brokerSecret.name }}{{ $own = true }}{{ end -}}
{{- if not $pool.single }}{{ $names = append $names $pool.pool }}{{ end -}}
{{- end -}}
{{- if or $own .Values.manager.pools }}{{ $names | uniq | sortAlpha | join "," }}{{ end -}}
{{- end -}}

{{/* The prefix of queues and exchanges that the environment of all pods sets. Empty: the configuration file decides. */}}
{{- define "everwatch.brokerPrefix" -}}
{{- if .Values.broker.topologyOperator.enabled -}}
{{- .Values.broker.prefix | default "everwatch." -}}
{{- else -}}
{{- .Values.broker.prefix -}}
{{- end -}}
{{- end -}}

{{/* Refuses values with which the broker's users would not fit the pods. */}}
{{- define "everwatch.brokerUsers.check" -}}
{{- if not .Values.broker.topologyOperator.cluster.name -}}
{{- fail "broker.topologyOperator.cluster.name is empty: set it to the name of the RabbitmqCluster" -}}
{{- end -}}
{{- if not .Values.existingSecret -}}
{{- fail "broker.topologyOperator.enabled: set existingSecret to a Secret with the URLs and the keys username and password, which the operator imports" -}}
{{- end -}}
{{- $prefixed := regexMatch "(?m)^\\s*(broker\\.)?prefix\\s*=" .Values.config -}}
{{- $secrets := dict .Values.existingSecret "the managers" -}}
{{- range $key, $given := .Values.pools -}}
{{- $pool := include "everwatch.pool" (list $ $key $given) | fromJson -}}
{{- $secret := $pool.brokerSecret.name -}}
{{- if not $secret -}}
{{- fail (printf "pools.%s.brokerSecret.name: name a Secret with the URL of this pool and the keys username and password: the user of the managers may not declare the queues of services" $key) -}}
{{- end -}}
{{- with get $secrets $secret -}}
{{- fail (printf "pools.%s.brokerSecret.name: %s is the Secret of %s: name another one, with a user of its own" $key $secret .) -}}
{{- end -}}
{{- $_ := set $secrets $secret (printf "pool %s" $key) -}}
{{- if regexMatch "(?m)^\\s*(broker\\.)?prefix\\s*=" $pool.config }}{{ $prefixed = true }}{{ end -}}
{{- end -}}
{{- if and $prefixed (not .Values.broker.prefix) -}}
{{- fail "broker.prefix is empty, but config sets a prefix: with broker.topologyOperator.enabled, set broker.prefix instead" -}}
{{- end -}}
{{- end -}}

{{/* The users of the broker with their permissions: a JSON array. `everwatch broker permissions` prints the same patterns, and
deploy/checks/permissions compares them. */}}
{{- define "everwatch.brokerUsers" -}}
{{- $id := "[0-9a-f-]{36}" -}}
{{- $any := "[a-z0-9-]+" -}}
{{- $queues := `heartbeats|parked|rates|state(\.[0-9]+)?|store` -}}
{{- $name := include "everwatch.brokerPrefix" . -}}
{{- $prefix := regexReplaceAll "[^A-Za-z0-9_-]" $name `\${0}` -}}
{{- $declared := printf `commands(\.%s)?|output|reports|work(\.%s)?|replies\.%s|%s` $any $any $id $queues -}}
{{- $users := list (dict
  "name" (printf "%s-manager" (include "everwatch.fullname" .))
  "secret" .Values.existingSecret
  "configure" (printf `^%s(%s|probe\.%s)$` $prefix $declared $id)
  "write" (printf `^(amq\.default|%s(%s|commands\.%s\.%s))$` $prefix $declared $any $id)
  "read" (printf `^%s(reports|work(\.%s)?|replies\.%s|%s)$` $prefix $any $id $queues)
  "topic" (dict "exchange" (printf "%soutput" $name) "write" `^batch\.completed$`)) -}}
{{- range $key, $given := .Values.pools -}}
{{- $pool := include "everwatch.pool" (list $ $key $given) | fromJson -}}
{{- $users = append $users (dict
  "name" $pool.fullname
  "key" $key
  "secret" $pool.brokerSecret.name
  "configure" (printf `^%s(commands\.%s\.%s|probe\.%s)$` $prefix $pool.pool $id $id)
  "write" (printf `^%s(commands\.%s\.%s|output|reports|state(\.[0-9]+)?)$` $prefix $pool.pool $id)
  "read" (printf `^%s(commands(\.%s(\.%s)?)?|work\.%s)$` $prefix $pool.pool $id $pool.pool)) -}}
{{- end -}}
{{- toJson $users -}}
{{- end -}}

{{- define "everwatch.brokerUsers.cluster" -}}
{{- with .Values.broker.topologyOperator.cluster -}}
name: {{ .name }}
{{- with .namespace }}
namespace: {{ . }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* Call it with (list $ USER). */}}
{{- define "everwatch.brokerUsers.labels" -}}
{{- $user := index . 1 -}}
{{ include "everwatch.labels" (index . 0) }}
{{- with $user.key }}
app.kubernetes.io/component: service
everwatch-pool: {{ . }}
{{- else }}
app.kubernetes.io/component: manager
{{- end }}
{{- end -}}
