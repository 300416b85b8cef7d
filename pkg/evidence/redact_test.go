// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/url"
	"strconv"
	"strings"
	"testing/iotest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
)

var _ = Describe("Redaction", func() {
	It("should leave names of variables and where they come from, and no values", func() {
		exec := &corev1.ExecAction{Command: []string{"check", "hunter2"}}
		get := &corev1.HTTPGetAction{Path: "/healthz", HTTPHeaders: []corev1.HTTPHeader{{Name: "Authorization", Value: "hunter2"}}}
		container := func() corev1.Container {
			return corev1.Container{
				Name: "c", Command: []string{"run"}, Args: []string{"--password=hunter2"},
				Env: []corev1.EnvVar{
					{Name: "PASSWORD", Value: "hunter2"},
					{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "token"}}},
				},
				EnvFrom:        []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "all"}}}},
				LivenessProbe:  &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: exec.DeepCopy()}},
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: get.DeepCopy()}},
				StartupProbe:   &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: exec.DeepCopy()}},
				Lifecycle:      &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: exec.DeepCopy()}, PreStop: &corev1.LifecycleHandler{HTTPGet: get.DeepCopy()}},
			}
		}
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Annotations: map[string]string{
					corev1.LastAppliedConfigAnnotation: "hunter2", "kapp.k14s.io/original": "hunter2", "objectset.rio.cattle.io/applied": "hunter2",
					"node.machine.sapcloud.io/last-applied-anno-labels-taints": ` {"annotations":{"a":"hunter2"}}`, "x.kubernetes.io/token": "hunter2",
					"x.gardener.cloud/large": strings.Repeat("hunter2", 200), "kubernetes.io/config.mirror": "x", "machinepriority.machine.sapcloud.io": "1",
				},
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "hunter2"}},
			},
			Status: corev1.PodStatus{
				InitContainerStatuses:      []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "hunter2", Reason: "Error"}}}},
				ContainerStatuses:          []corev1.ContainerStatus{{LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "hunter2"}}}},
				EphemeralContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "hunter2"}}}},
			},
			Spec: corev1.PodSpec{
				Volumes: []corev1.Volume{
					{VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d", VolumeAttributes: map[string]string{"a": "hunter2"}}}},
					{VolumeSource: corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Options: map[string]string{"a": "hunter2"}}}},
				},
				InitContainers:      []corev1.Container{container()},
				Containers:          []corev1.Container{container()},
				EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon(container())}},
			},
		}
		counts := RedactPod(pod)
		Expect(pod.String()).NotTo(ContainSubstring("hunter2"))
		Expect(pod.Annotations).To(Equal(map[string]string{"kubernetes.io/config.mirror": "x", "machinepriority.machine.sapcloud.io": "1"}))
		Expect(pod.Spec.Volumes[0].CSI.Driver).To(Equal("d"))
		Expect(pod.Status.InitContainerStatuses[0].State.Terminated.Reason).To(Equal("Error"))
		Expect(pod.Spec.EphemeralContainers[0].Env).To(ConsistOf(HaveField("Name", "PASSWORD"), HaveField("ValueFrom.SecretKeyRef.Name", "s")))
		Expect(pod.Spec.Containers[0].EnvFrom).To(HaveLen(1))
		Expect(pod.Spec.Containers[0].ReadinessProbe.HTTPGet.Path).To(Equal("/healthz"))
		Expect(counts).To(HaveKeyWithValue("values of environment variables of containers", 3))
		Expect(counts).To(HaveLen(7))
	})

	DescribeTable("#Scrub", func(text, want string) {
		Expect(Scrub(text)).To(Equal(want))
	},
		Entry("nothing", "Kubelet stopped posting node status.", "Kubelet stopped posting node status."),
		Entry("a token of a service account", "got eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl!", "got [redacted]!"),
		Entry("a bearer", "Authorization: Bearer 0123456789abcdef0123", "Authorization: [redacted]"),
		Entry("a bearer alone", "with Bearer 0123456789abcdef0123", "with Bearer [redacted]"),
		Entry("a short basic authentication", "Authorization: Basic dTpw", "Authorization: [redacted]"),
		Entry("a header in Go", `map[X-Vault-Token:[hunter2 x] Accept:[y]]`, `map[X-Vault-Token:[redacted] Accept:[y]]`),
		Entry("a header", "X-Vault-Token: hunter2", "X-Vault-Token: [redacted]"),
		Entry("any other scheme", "Authorization: token hunter2", "Authorization: [redacted]"),
		Entry("a scheme with an account", "Proxy-Authorization: SharedKey acct:hunter2= x", "Proxy-Authorization: [redacted]"),
		Entry("a scheme in quotes", `{"Authorization":"ApiKey hunter2","user":"x"}`, `{"Authorization":[redacted],"user":"x"}`),
		Entry("a scheme in Go", `map[Authorization:[NTLM hunter2] Accept:[y]]`, `map[Authorization:[redacted] Accept:[y]]`),
		Entry("how one is authorized", "authorization-mode: hunter2 x", "authorization-mode: [redacted] x"),
		Entry("what follows a name after a blank", "PASSWORD hunter2secret x", "PASSWORD [redacted] x"),
		Entry("the password of a volume", `volume "secret-vol" : password: hunter2`, `volume "secret-vol" : password: [redacted]`),
		Entry("a token in a URL", "clone https://token-hunter2abcdefgh@github.com/x y", "clone https://[redacted]@github.com/x y"),
		Entry("a hash", "root:$6$saltsalt$hunter2hunter2./:19000:0", "root:[redacted]:19000:0"),
		Entry("cookies", "Set-Cookie: a=hunter2; b=hunter2\nc", "Set-Cookie: [redacted]\nc"),
		Entry("a bootstrap token", "kubeadm join x abcdef.0123456789abcdef", "kubeadm join x [redacted]"),
		Entry("a variable", "AWS_SECRET_ACCESS_KEY=hunter2 DB_PASSWORD=hunter2 client_secret=hunter2 access_token=hunter2", "AWS_SECRET_ACCESS_KEY=[redacted] DB_PASSWORD=[redacted] client_secret=[redacted] access_token=[redacted]"),
		Entry("JSON", `{"password":"hunter \"2","user":"x"}`, `{"password":[redacted],"user":"x"}`),
		Entry("JSON in JSON", `{"msg":"{\"password\":\"hunter2\",\"user\":1}"}`, `{"msg":"{\"password\":[redacted],\"user\":1}"}`),
		Entry("YAML", "password: hunter2\nuser: x", "password: [redacted]\nuser: x"),
		Entry("YAML in lines", "a:\n  password: |\n    hunter2\n\n    hunter2\n  user: |\n    x", "a:\n  password: [redacted]\n[redacted]\n[redacted]\n[redacted]\n  user: |\n    x"),
		Entry("YAML in lines of a log", "10:01 password: >-\n10:02   hunter2\n10:03 user: x", "10:01 password: [redacted]\n[redacted]\n10:03 user: x"),
		Entry("YAML in lines, at the end", "password: |", "password: [redacted]"),
		Entry("a short name", "pass: hunter2 DB_PASS=hunter2 passed: 1 bypass: 2", "pass: [redacted] DB_PASS=[redacted] passed: 1 bypass: 2"),
		Entry("a name of two words", "API key: hunter2, Secret Key: hunter2", "API key: [redacted] Secret Key: [redacted]"),
		Entry("an arrow", `password => hunter2 "token"=>"hunter2"`, `password => [redacted] "token"=>[redacted]`),
		Entry("a quoted value", `pwd = 'hunter 2' x`, `pwd = [redacted] x`),
		Entry("a flag and its value", "run --token hunter2 --v 3", "run --token [redacted] --v 3"),
		Entry("a flag and its value in quotes", `run --token 'hunter2 hunter2' --password "hunter\"2 x" --v 3`, `run --token [redacted] --password [redacted] --v 3`),
		Entry("flags without values", `run --insecure-token --v 3 "--use-token" "--v"`, `run --insecure-token --v 3 "--use-token" "--v"`),
		Entry("flags in JSON", `["--registry-password", "hunter2"]`, `["--registry-password", [redacted]]`),
		Entry("a signature in a URL", "https://x/y?sv=1&sig=hunter2%3D&se=2", "https://x/y?sv=1&sig=[redacted]&se=2"),
		Entry("a key of a connection string", "AccountName=x;AccountKey=hunter2==;Suffix=y", "AccountName=x;AccountKey=[redacted];Suffix=y"),
		Entry("what only sounds like it", `signal: killed, author: x, secret "s" not found, key="ns/m-1"`, `signal: killed, author: x, secret "s" not found, key="ns/m-1"`),
		Entry("not each bearer", "the bearer of bad news", "the bearer of bad news"),
		Entry("a user in a URL", `pull "https://me:hunter2@registry.example.org/x"`, `pull "https://[redacted]@registry.example.org/x"`),
		Entry("a password as it must not be in a URL", "postgres://u:hunter@2/w@host/x http://u:123@host", "postgres://[redacted]@host/x http://[redacted]@host"),
		Entry("a user with a domain in a URL", "smtp://u@example.org:hun/ter2@host/x", "smtp://[redacted]@host/x"),
		Entry("not each URL", "https://10.0.0.1:6443/api https://registry:5000/x@sha256:1", "https://10.0.0.1:6443/api https://registry:5000/x@sha256:1"),
		Entry("an assignment", `--password=hunter2 --token=abc,x`, `--password=[redacted] --token=[redacted]`),
		Entry("a key", "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----\nb", "a\n[redacted]\nb"),
		Entry("a key in JSON", `{"a":"-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n","b":1}`, `{"a":"[redacted]\n","b":1}`),
		Entry("a key in a log", "10:01 a\n10:02 -----BEGIN RSA PRIVATE KEY-----\n10:03 MIIE\n10:04 -----END RSA PRIVATE KEY-----\n10:05 b", "10:01 a\n10:02 [redacted]\n10:05 b"),
		Entry("a key without its end", "a\n-----BEGIN PRIVATE KEY-----\nMIIE\nabc", "a\n[redacted]"),
		Entry("a key without its beginning", "MIIE\nabc\n-----END PRIVATE KEY-----\nb", "[redacted]\nb"),
		Entry("two keys", "-----BEGIN EC PRIVATE KEY-----x-----END EC PRIVATE KEY-----a-----BEGIN PRIVATE KEY-----y-----END PRIVATE KEY-----b", "[redacted]a[redacted]b"),
		Entry("a key without its end after a mark that was only told of", `no "-----BEGIN PRIVATE KEY-----" in x`+"\n-----BEGIN PRIVATE KEY-----\nMIIE\nabc", `no "[redacted][redacted]`),
		Entry("a key whose mark is at the end of what goes without one",
			"-----BEGIN PRIVATE KEY-----"+strings.Repeat("x", 16<<10-40)+"-----BEGIN PRIVATE KEY-----MIIE-----END PRIVATE KEY-----b", "[redacted][redacted]b"),
		Entry("not all of a log without the end of a key", "-----BEGIN PRIVATE KEY-----"+strings.Repeat("x", 16<<10), "[redacted]"+strings.Repeat("x", len("-----BEGIN PRIVATE KEY-----"))),
		Entry("once", "--token=[redacted]", "--token=[redacted]"),
	)

	const secret = "hunter2"
	pem := "-----BEGIN RSA PRIVATE KEY-----\nMIIEhunter2\n-----END RSA PRIVATE KEY-----\n"
	encoded := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

	DescribeTable("should redact", func(text string, secrets ...string) {
		if len(secrets) == 0 {
			secrets = []string{secret}
		}
		scrubbed := Scrub(text)
		Expect(scrubbed).To(ContainSubstring("[redacted]"))
		for _, secret := range secrets {
			Expect(text).To(ContainSubstring(secret))
			Expect(scrubbed).NotTo(ContainSubstring(secret))
		}
		Expect(Scrub(scrubbed)).To(Equal(scrubbed), "once is enough")
	},
		Entry("a value in the next line", "a:\n  password:\n    hunter2\n  user: x"),
		Entry("a value in the next line, in quotes", "{\n  \"password\":\n    \"hunter2\"\n}"),
		Entry("values in the next lines", "tokens:\n- hunter2\n- hunter2"),
		Entry("a value in the next line of a log", "2026-11-23T19:45:34.123Z password:\n2026-11-23T19:45:34.124Z   hunter2\n"),
		Entry("a value in the next line of a journal", "Nov 23 19:45:34 node-1 app[123]: password:\nNov 23 19:45:34 node-1 app[123]:   hunter2\n"),
		Entry("a value in the next line of the kernel's log", "[   12.345678] password:\n[   12.345679]   hunter2\n"),
		Entry("all lines of a block in a log", "2026-11-23T19:45:34.123Z password: |\n2026-11-23T19:45:34.123Z   x\n2026-11-23T19:45:34.123Z   hunter2\n2026-11-23T19:45:34.123Z user: x\n"),
		Entry("all lines of a block in a container's log", "2026-11-23T19:45:34.123Z stdout F password: |\n2026-11-23T19:45:34.123Z stdout F   x\n2026-11-23T19:45:34.123Z stdout F   hunter2\n"),
		Entry("a value in the next line of a text in JSON", `{"msg":"password:\n  hunter2\n"}`),
		Entry("a block in a text in JSON", `{"msg":"password: |-\n  x\n  hunter2\n"}`),
		Entry("a variable in YAML in JSON", `{"msg":"- name: DB_PASSWORD\n  value: hunter2\n"}`),
		Entry("a flag's value in the next line", "--token\nhunter2"),
		Entry("a flag's value in the next argument", "args:\n- --token\n- hunter2\n"),
		Entry("a flag's value in the next line of JSON", "[\n  \"--token\",\n  \"hunter2\"\n]"),
		Entry("a flag's value after the line's end", "run --password \\\n  hunter2 \\\n  --v 3"),
		Entry("a flag's value in JSON", `["--token","hunter2"]`),
		Entry("a flag's value in JSON in JSON", `{"a":"[\"--token\",\"hunter2\"]"}`),
		Entry("a quote in a text in JSON", `{"a":"{\"password\":\"x\\\"hunter2\",\"user\":\"x\"}"}`),
		Entry("a text in JSON that was cut", `{"a":"{\"password\":\"x hunter2`),
		Entry("a variable in JSON", `{"name":"DB_PASSWORD","value":"hunter2"}`),
		Entry("a variable in JSON in JSON", `"{\"name\": \"DB_PASSWORD\", \"value\": \"hunter2\"}"`),
		Entry("a variable in JSON in reverse", `{"value":"hunter2","name":"DB_PASSWORD"}`),
		Entry("a variable in lines", "{\n  \"name\": \"DB_PASSWORD\",\n  \"value\": \"hunter2\"\n}"),
		Entry("a variable in lines of a log", "2026-11-23T19:45:34.123Z - name: DB_PASSWORD\n2026-11-23T19:45:34.123Z   value: hunter2\n"),
		Entry("a variable in lines in reverse", "{\n  \"value\": \"hunter2\",\n  \"name\": \"DB_PASSWORD\"\n}"),
		Entry("a variable in YAML", "env:\n- name: DB_PASSWORD\n  value: hunter2\n"),
		Entry("a variable in YAML in reverse", "env:\n- value: hunter2\n  name: DB_PASSWORD\n"),
		Entry("a variable whose value is a block", "env:\n- name: DB_PASSWORD\n  value: |\n    x\n    hunter2\n"),
		Entry("a variable that the kubelet tells", `Env:[]EnvVar{EnvVar{Name:DB_PASSWORD,Value:a, hunter2,ValueFrom:nil,},},`),
		Entry("a variable in Go", `[{Name:A Value: ValueFrom:<nil>} {Name:DB_PASSWORD Value:hunter2 ValueFrom:<nil>}]`),
		Entry("an assignment in JSON", `"args: token\u003dhunter2\u0026x"`),
		Entry("an assignment in JSON in JSON", `"{\"a\":\"token\\u003Dhunter2\"}"`),
		Entry("JSON in HTML's JSON", `"{\u0022token\u0022\u003a\u0022hunter2\u0022}"`),
		Entry("an assignment in a URL", "GET /?q=password%3Dhunter2%26user%3Dx"),
		Entry("an assignment in a URL in a URL", "GET /?q=password%253dhunter2"),
		Entry("JSON in a URL", "GET /?q=%7B%22password%22%3A%22hunter2%22%7D"),
		Entry("a key in base64", "key "+encoded(pem), encoded(pem)[12:], "SBLRVk"),
		Entry("a key in base64 after something else", "x "+encoded("1"+pem)+" x "+encoded("12"+pem), encoded("1" + pem)[12:], encoded("12" + pem)[12:]),
		Entry("a key in lines of base64", "a:\n  "+encoded(pem)[:76]+"\n  "+encoded(pem)[76:]+"\n", encoded(pem)[:76], encoded(pem)[76:]),
		Entry("a kubeconfig in base64", "x="+encoded("apiVersion: v1\nkind: Config\ntoken: hunter2\n"), "Ka2luZDogQ29uZmln"),
		Entry("a kubeconfig in base64 that begins otherwise", encoded("kind: Config\napiVersion: v1\ntoken: hunter2\n"), "CnRva2VuOiBodW50"),
		Entry("a kubeconfig in base64 of JSON", encoded(`{"apiVersion":"v1","kind":"Config","token":"hunter2"}`)+" "+encoded(`{"kind":"Config","token":"hunter2"}`), "iOiJodW50ZXIyI"),
		Entry("access to registries in base64", encoded(`{"auths":{"x":{"auth":"hunter2"}}}`), "iOiJodW50ZXIyI"),
		Entry("a user of curl", "curl -s -u me:hunter2 https://x"),
		Entry("a user of curl in quotes", `curl -s --user "me:a hunter2" https://x`),
		Entry("a user of curl in one word", "curl -ume:hunter2 https://x"),
		Entry("a user of a proxy", "curl --proxy-user=me:hunter2 https://x"),
		Entry("a user of a registry", "crictl pull --creds me:hunter2 x"),
		Entry("a user of containerd's", "ctr -n k8s.io images pull --user me:hunter2 x"),
		Entry("a password for mysql", "mysql -u root -phunter2 db"),
		Entry("a password for mysqldump", "mysqldump --password=hunter2 db"),
		Entry("a password for a registry", "docker login -u me -p hunter2 registry"),
		Entry("a password for ssh", "sshpass -p hunter2 ssh x and sshpass -phunter2 ssh x"),
		Entry("tokens of GitHub", "ghp_0123456789abcdefghijABCDEFGHIJ012345 gho_0123456789abcdefghijABCDEFGHIJ012345 github_pat_11ABCDEFG0abcdefghij_ABCDEFGHIJ", "ghp_0", "gho_0", "abcdefghij"),
		Entry("a token of GitLab", "glpat-abcdefghijABCDEFGHIJ", "ABCDEFGHIJ"),
		Entry("tokens of Slack", "xoxb-123456789012-abcdefghij xoxp-123456789012-abcdefghij", "abcdefghij"),
		Entry("keys of AWS", "AKIAIOSFODNN7EXAMPLE ASIAIOSFODNN7EXAMPLE", "IOSFODNN7EXAMPLE"),
		Entry("a key of Google", "AIzaSyA0123456789abcdefghijABCDEFGHIJ01", "SyA0123"),
		Entry("a token of Google", "ya29.a0AfH6SMBx0123456789-abcdef", "0123456789"),
		Entry("an account of Google", `{"type": "service_account", "private_key_id": "1", "private_key": "-----BEGIN PRIVATE KEY-----\nMIIEhunter2\n-----END PRIVATE KEY-----\n"}`),
		Entry("a connection string of Azure", "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=hunter2==;SharedAccessKey=hunter2="),
		Entry("a signature of Azure", "SharedAccessSignature sr=x&sig=hunter2%3D&se=1 and /?sv=1\\u0026sig=hunter2%3D and %26sig%3Dhunter2%253D"),
		Entry("a key of Alibaba", "LTAI5tAbCdEfGhIjKlMnOpQr AccessKeySecret=hunter2", secret, "AbCdEfGh"),
		Entry("access to OpenStack", `OS_PASSWORD=hunter2 OS_APPLICATION_CREDENTIAL_SECRET=hunter2 "application_credential_secret": "hunter2" gAAAAABlabcdefghij0123456789ABCDEFGHIJ`, secret, "ABCDEFGHIJ"),
		Entry("a name before a blank and a tab", "PASSWORD hunter2secret DB_PASSWORD\thunter2secret"),
		Entry("what a password is", `the password is hunter2secret, passphrase is "hunter2"`),
		Entry("a password of letters only", "password correcthorse and token 'AbCdEfGhIjKl'", "correcthorse", "AbCdEfGhIjKl"),
		Entry("a key of AWS after a blank", "aws_secret_access_key AbCdEf0123/hunter2+x", "AbCdEf0123", secret),
		Entry("secrets after a blank", "client_secret hunter2 and SECRET hunter2 and the secret AbChunter2"),
		Entry("a file for netrc", "machine x login foo password hunter2x"),
		Entry("a token in a URL", "https://token-hunter2abcdefgh@github.com/x https://abcdefgh@x", "hunter2abc", "//abcdefgh@"),
		Entry("short names of passwords", "dbpw=hunter2 psk=hunter2 wpa_psk: hunter2 passcode=hunter2 passcode: hunter2 rootpw hunter2 bindpw=hunter2"),
		Entry("keys of Anthropic and of OpenAI", "sk-ant-api03-hunter2hunter2hunter2 sk-proj-hunter2hunter2hunter2"),
		Entry("keys of Stripe", "sk_live_hunter2hunter2hunter2 rk_test_hunter2hunter2hunter2"),
		Entry("tokens of npm and of Docker", "npm_hunter2hunter2hunter2hunter2hunter2a dckr_pat_hunter2hunter2hunter2"),
		Entry("a cloud-config in base64", "userdata "+encoded("#cloud-config\npassword: hunter2\n"), encoded("#cloud-config\npassword: hunter2\n")[20:]),
		Entry("a script in base64", "userdata "+encoded("#!/bin/bash\npassword=hunter2\n"), encoded("#!/bin/bash\npassword=hunter2\n")[20:]),
		Entry("hashes of passwords", "a:$1$saltsalt$hunter2hunter2: b:$5$rounds=5000$saltsalt$hunter2: c:$6$saltsalt$hunter2: d:$y$j9T$saltsalt$hunter2: e $2a$10$hunter2hunter2 $2b$10$hunter2hunter2 $2y$10$hunter2hunter2"),
		Entry("what begins harmlessly", "token=true,hunter2 token=24h.hunter2 password=/etchunter2 key-token=0xhunter2 token.go:1hunter2"),
		Entry("numbers that may be keys", "private_key=0x0123456789abcdef0123456789abcdef token=0x0123456789abcdef", "0x0123"),
		Entry("keys that begin like paths", "secret_access_key=/abcd/hunter2 secret_access_key=/var+hunter2"),
		Entry("Secrets with data", `"secret":{"name":"x","data":{"a":"hunter2"}}`),
		Entry("secrets that look like names of Secrets", `client-secret="abc/hunter2" secret="AbC/hunter2"`),
		Entry("what only looks like a URL before it", `"httpProxy password": hunter2 "https://x/password": "hunter2"`),
		Entry("what follows what stays", "token-ttl=24h password=hunter2 auth=ok,password=hunter2 secret: unexpected password: hunter2"),
		Entry("a token of Vault", "hvs.CAESIabcdefghij0123456789", "0123456789"),
	)

	DescribeTable("should leave", func(text string) {
		Expect(Scrub(text)).To(Equal(text))
	},
		Entry("what happened to a token", "the token expired, the password policy denies it, no credentials found"),
		Entry("what failed, in a log", "E1123 19:45:34.123456    1 x.go:1] failed to get token:\nI1123 19:45:34.123456    1 x.go:1] next\n"),
		Entry("what failed, in a log with times", "2026-11-23T19:45:34.123Z cannot read secret:\n2026-11-23T19:45:34.123Z next\n"),
		Entry("where values come from", "password:\n  valueFrom:\n    fieldRef: x\n"),
		Entry("lists of references", "imagePullSecrets:\n- name: x\n- name: y\n"),
		Entry("a flag that is not known", "unknown flag: --token\nSee 'run --help' for usage.\nFlags:\n"),
		Entry("flags in lines", "args:\n- --use-token\n- --v\n- \"--token\"\n- \"--x\"\n"),
		Entry("other variables", `{"name":"LOG_LEVEL","value":"debug"} {"value":"debug","name":"LOG_LEVEL"} EnvVar{Name:A,Value:b,ValueFrom:nil,}`),
		Entry("other variables in lines", "- name: LOG_LEVEL\n  value: debug\n- value: x\n  name: y\n"),
		Entry("names without values", "- name: token\n- name: x\n  image: y\n  a: b\n  c: d\n  value: x\n"),
		Entry("a value of something before", "value: x\na: 1\nb: 2\nc: 3\nd: 4\nname: token\n"),
		Entry("images", "registry.example.com/app@sha256:0c8f5e2f6b6f4d0b9f7a3b0d1e2c3b4a5968778695a4b3c2d1e0f9e8d7c6b5a4"),
		Entry("checksums", "checksum/secret-x 0c8f5e2f6b6f4d0b, md5 d41d8cd98f00b204e9800998ecf8427e"),
		Entry("UIDs", `podUID="4f6dcd3e-2b1a-4c8e-9f5e-0c1d2e3f4a5b"`),
		Entry("nodes", "shoot--core--local-worker-1-5d4f7-abcde ip-10-250-0-12.eu-west-1.compute.internal"),
		Entry("base64", encoded("what is no secret, and long enough to be one")+" "+encoded("hello")),
		Entry("ports", "docker run -p 80:80 -p 8080 x; ssh -p 22 x; mysql -P 3306 -p; mkdir -p a/b; curl -p x"),
		Entry("users", "docker run -u 1000:1000 x; curl -u; curl -u me https://x; curl -s https://x:443 -u me; login -p"),
		Entry("words that begin like keys", "AKIA AIza LTAI ghp_x xoxb- github_pattern hvs.x ya29.x gAAAAA"),
		Entry("escapes", `\u003d \u0026 %3D %26 a\u003db user%3Dx`),
		Entry("a Secret that a volume needs", `MountVolume.SetUp failed for volume "secret-vol" : secret "cloudprovider" not found`),
		Entry("a Secret that a volume needs, in quotes", `err="MountVolume.SetUp failed for volume \"my-token-vol\" : configmap \"x\" not found"`),
		Entry("the name of a Secret", `secret="kube-system/foo-secret" x \"secret=\\\"kube-system/foo-secret\\\"\"`),
		Entry("a Secret in JSON", `{"secret":{"name":"cloud-config-token","namespace":"kube-system"},"x":1}`),
		Entry("why there is no token", "failed to fetch anonymous token: unexpected status: 401"),
		Entry("why there is no token of OAuth", `failed to fetch oauth token: Post "https://auth.example.com/token": EOF`),
		Entry("lines of code", "E1123 19:45:34.123456    1 token_manager.go:126] x (secret.go:12)"),
		Entry("how it went", "auth=ok password=false auth: none"),
		Entry("the kernel's signatures", "microcode: sig=0x50654, pf=0x80, EDAC signature: 0x1f00a"),
		Entry("flags that are no credentials", "--authorization-mode=Webhook --authorization-mode=Node,RBAC --token-ttl=24h --token-ttl 1h30m0s --authentication-token-webhook=true --client-key=/var/lib/x.key --client-key \"/etc/x.key\""),
		Entry("fields that are no credentials", `{"useToken":true,"tokenFile":"/var/run/secrets/x","tokenTTL":"24h"}`),
		Entry("what is said of credentials", "password expired, password policy, password required, the password is incorrect, token is required. password authentication is disabled: token requested; password mismatch, password must be"),
		Entry("what is said of tokens", `token namespace="kube-system" token v1 token 12 token /etc/x/y1 secret foo-1a2b not found, token https://x.example.com/1`),
		Entry("users in URLs", "https://git@x/y https://me@x ssh://core12345@x docker-pullable://nginx123@sha256:1"),
		Entry("what has dollars in it", "$1 $6$ s/a/$1$2/ $y$x costs $5"),
		Entry("how long a token is good for", "tokenExpirationSeconds x, tokens were renewed, secret/x, secrets \"x\" is forbidden"),
	)

	It("should redact no more than 16 KiB of a block that does not end", func() {
		scrubbed := Scrub("password: |\n" + strings.Repeat("  x\n", 16<<10))
		Expect(strings.Count(scrubbed, "  x\n")).To(BeNumerically("~", 12<<10, 10))
		Expect(Scrub("tokens:\n" + strings.Repeat("- x\n", 16<<10))).To(ContainSubstring("- x\n"))
	})

	It("should leave no headers in the kubelet's configuration", func() {
		Expect(RedactConfigz([]byte(`{"kubeletconfig":{"staticPodURLHeader":{"Authorization":["hunter2"]},"maxPods":110}}`))).To(MatchJSON(
			`{"kubeletconfig":{"staticPodURLHeader":{"Authorization":"[redacted]"},"maxPods":110}}`))
		_, err := RedactConfigz([]byte("404 page not found"))
		Expect(err).To(HaveOccurred())
	})
})

var _ = Describe("Logs", func() {
	It("should keep the last whole lines", func() {
		data, lead, cut, err := ReadLog(strings.NewReader("one\ntwo\nthree\nfour"), 12, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(data[lead:])).To(Equal("three\nfour\n"))
		Expect(string(data[:lead])).To(Equal("one\ntwo\n"), "tells what the others are")
		Expect(cut).To(BeEquivalentTo(8))
	})

	DescribeTable("should know of what a kept line is the rest", func(ctx SpecContext, begin, rest string) {
		const kept = 4 << 20
		for _, reader := range []string{"logs/kern.log", "logs/"} {
			for _, before := range []int{1, 100} {
				s, k := sources(), &kubelet{}
				s.NodeProxy = func(ctx context.Context, node, path string, query url.Values, last int64) (io.ReadCloser, error) {
					if path != reader || path == "logs/" && query.Get("query") != "kubelet" {
						return k.proxy(ctx, node, path, query, last)
					}
					filler := func(size int) string { return strings.Repeat(strings.Repeat("y", 15)+"\n", size/16+1) }
					log := filler(1<<20) + begin + strings.Repeat(rest, 200)
					log += filler(kept - before*len(rest))[:kept-before*len(rest)-1] + "\n"
					if last > 0 {
						log = log[max(0, len(log)-int(last)):]
					}
					return io.NopCloser(strings.NewReader(log)), nil
				}
				b, err := Collect(ctx, s)
				Expect(err).NotTo(HaveOccurred())
				files, _ := unpacked(written(b, DefaultMaxSize))
				for path, data := range files {
					Expect(strings.Contains(data, "hunter2")).To(BeFalse(), path)
				}
				Expect(files).To(HaveKeyWithValue("node/logs/kubelet.log", Not(BeEmpty())))
			}
		}
	},
		Entry("a block", "password: |\n", "  hunter2\n"),
		Entry("lines of base64", "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0t\n", "hunter2hunter2hunter2hunter2\n"),
		Entry("a private key", "-----BEGIN PRIVATE KEY-----\n", "hunter2\n"),
	)

	It("should have what was asked for of a log's end begin after what may be the rest of something", func(ctx SpecContext) {
		s, k := sources(), &kubelet{}
		s.NodeProxy = func(ctx context.Context, node, path string, query url.Values, last int64) (io.ReadCloser, error) {
			if query == nil {
				return k.proxy(ctx, node, path, query, last)
			}
			lines, err := strconv.Atoi(query.Get("tailLines"))
			Expect(err).NotTo(HaveOccurred())
			return io.NopCloser(strings.NewReader(strings.Repeat("  hunter2\n", 100) + strings.Repeat("yyyyy\n", lines-100))), nil
		}
		b, err := Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		archive := written(b, DefaultMaxSize)
		files, _ := unpacked(archive)
		Expect(files["node/logs/kubelet.log"]).To(HavePrefix("yyyyy\n"))
		Expect(files["node/logs/kubelet.log"]).NotTo(ContainSubstring("hunter2"))
		Expect(manifestOf(archive).Files).To(ContainElement(
			And(HaveField("Path", "node/logs/kubelet.log"), HaveField("Cut", BeNumerically("~", 16<<10, 10)))))
	})

	It("should not have a line that is too long end within a word", func() {
		long := strings.Repeat("x ", 8<<10-10) + "https://me:hunter2hunter2@x " + strings.Repeat("x", 100) + "\n"
		data, _, _, err := ReadLog(strings.NewReader(long), 1<<20, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(data).To(HavePrefix("x x "))
		Expect(Scrub(string(data))).NotTo(ContainSubstring("hunter"))

		node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Message: long[16<<10-1000:]}}}}
		RedactNode(node)
		Expect(node.Status.Conditions[0].Message).To(HavePrefix("x x"))
		Expect(Scrub(node.Status.Conditions[0].Message)).NotTo(ContainSubstring("hunter"))
	})

	It("should keep what was read before an error, and the beginning of a line that is too long", func() {
		failure := errors.New("reset")
		data, _, _, err := ReadLog(iotest.DataErrReader(readers("one\n"+strings.Repeat("x", 1<<20)+"\ntw", failure)), 1<<20, nil)
		Expect(err).To(MatchError(failure))
		Expect(data).To(HavePrefix("one\nxxx"))
		Expect(data).To(HaveSuffix("\ntw\n"))
		Expect(len(data)).To(BeNumerically("<", 20<<10))
	})

	DescribeTable("#Naming", func(line string, want bool) {
		Expect(Naming("m-1", "", "node.m-1.example")([]byte(line))).To(Equal(want))
	},
		Entry("the machine", `"machine"="m-1" gone`, true),
		Entry("at the end", "gone: m-1", true),
		Entry("the node", "node.m-1.example: gone", true),
		Entry("a longer name", "m-10", false),
		Entry("a name with a suffix", "m-1-x", false),
		Entry("a name with a prefix", "x-m-1", false),
		Entry("another one", "m-2", false),
	)

	It("should name nothing without names", func() {
		Expect(Naming("")([]byte("x"))).To(BeFalse())
	})
})

func readers(text string, err error) *failing {
	return &failing{Reader: bytes.NewReader([]byte(text)), err: err}
}

// failing reads a text, then fails.
type failing struct {
	*bytes.Reader
	err error
}

func (f *failing) Read(p []byte) (int, error) {
	if n, _ := f.Reader.Read(p); n > 0 {
		return n, nil
	}
	return 0, f.err
}
