{{- /* Whether a pod names a part of a GPU as other systems do, in CEL. */}}
{{- define "cgpu.namesPartOfGpu" -}}
(object.spec.containers + object.spec.?initContainers.orValue([])).exists(c,
[c.?resources.?limits.orValue({}), c.?resources.?requests.orValue({})].exists(list,
list.exists(name, name in [
"nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores",
"aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage",
"tke.cloud.tencent.com/qgpu-memory", "tke.cloud.tencent.com/qgpu-core",
"tke.cloud.tencent.com/qgpu-core-greedy"])))
{{- end }}

{{- /* What any claim may ask for. Values of a release from before they were there have none. */}}
{{- define "cgpu.allow" -}}
{{- $allow := .Values.allow | default dict }}
{{- if $allow.capabilities }}
- --allow-capabilities={{ join "," $allow.capabilities }}
{{- end }}
- --allow-priority={{ $allow.priority | default "normal" }}
{{- /* `default` would take zero for none. */}}
- --allow-burst={{ hasKey $allow "burstMs" | ternary $allow.burstMs 200 }}
{{- end }}

{{- /* The Secrets for a registry that asks for a login. */}}
{{- define "cgpu.pullSecrets" -}}
{{- with .Values.image.pullSecrets -}}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Whether the figures take a login. Values of a release from before it was there say nothing. */}}
{{- define "cgpu.login" -}}
{{- if hasKey .Values.metrics "login" | ternary .Values.metrics.login true }}yes{{ end }}
{{- end }}
