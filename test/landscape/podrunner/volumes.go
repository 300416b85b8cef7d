// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package podrunner

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// volumes makes the content of the volumes of one pod. Supported are emptyDir, and secret, configMap and projected
// volumes, also with tokens of the pod's own service account.
type volumes struct {
	client client.Client
	dir    string
	tokens map[string]token
}

type token struct {
	value   string
	refresh time.Time
}

// sync writes what has changed. It returns when it has to be called again at the latest, because a token has to be
// refreshed then: zero if there is none. A change of a secret or a config map is an occasion to call it, too.
func (v *volumes) sync(ctx context.Context, pod *corev1.Pod) (time.Time, error) {
	for _, volume := range pod.Spec.Volumes {
		files, err := v.files(ctx, pod, volume)
		if err != nil {
			return time.Time{}, fmt.Errorf("volume %s: %w", volume.Name, err)
		}
		if err := writeFiles(filepath.Join(v.dir, volume.Name), files); err != nil {
			return time.Time{}, fmt.Errorf("volume %s: %w", volume.Name, err)
		}
	}
	next := time.Time{}
	for _, token := range v.tokens {
		if next.IsZero() || token.refresh.Before(next) {
			next = token.refresh
		}
	}
	return next, nil
}

func (v *volumes) files(ctx context.Context, pod *corev1.Pod, volume corev1.Volume) (map[string][]byte, error) {
	switch {
	case volume.EmptyDir != nil:
		return nil, nil
	case volume.Secret != nil:
		return v.fromSecret(ctx, pod.Namespace, volume.Secret.SecretName, volume.Secret.Items, volume.Secret.Optional)
	case volume.ConfigMap != nil:
		return v.fromConfigMap(ctx, pod.Namespace, volume.ConfigMap.Name, volume.ConfigMap.Items, volume.ConfigMap.Optional)
	case volume.Projected != nil:
		files := map[string][]byte{}
		for _, source := range volume.Projected.Sources {
			projected, err := v.fromProjection(ctx, pod, volume.Name, source)
			if err != nil {
				return nil, err
			}
			maps.Copy(files, projected)
		}
		return files, nil
	default:
		return nil, fmt.Errorf("only emptyDir, secret, configMap and projected are supported")
	}
}

func (v *volumes) fromProjection(ctx context.Context, pod *corev1.Pod, volumeName string, source corev1.VolumeProjection) (map[string][]byte, error) {
	switch {
	case source.Secret != nil:
		return v.fromSecret(ctx, pod.Namespace, source.Secret.Name, source.Secret.Items, source.Secret.Optional)
	case source.ConfigMap != nil:
		return v.fromConfigMap(ctx, pod.Namespace, source.ConfigMap.Name, source.ConfigMap.Items, source.ConfigMap.Optional)
	case source.ServiceAccountToken != nil:
		value, err := v.token(ctx, pod, volumeName, source.ServiceAccountToken)
		if err != nil {
			return nil, err
		}
		return map[string][]byte{source.ServiceAccountToken.Path: []byte(value)}, nil
	case source.DownwardAPI != nil:
		files := map[string][]byte{}
		for _, item := range source.DownwardAPI.Items {
			if item.FieldRef == nil {
				return nil, fmt.Errorf("downward API file %s has a source that is not supported", item.Path)
			}
			value, err := field(pod, item.FieldRef.FieldPath)
			if err != nil {
				return nil, fmt.Errorf("downward API file %s: %w", item.Path, err)
			}
			files[item.Path] = []byte(value)
		}
		return files, nil
	default:
		return nil, fmt.Errorf("only secret, configMap, serviceAccountToken and downwardAPI are supported as projection")
	}
}

func (v *volumes) fromSecret(ctx context.Context, namespace, name string, items []corev1.KeyToPath, optional *bool) (map[string][]byte, error) {
	secret := &corev1.Secret{}
	if err := v.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret); err != nil {
		if optional != nil && *optional {
			err = client.IgnoreNotFound(err)
		}
		if err != nil {
			return nil, fmt.Errorf("could not read secret %s: %w", name, err)
		}
	}
	return selectItems("secret "+name, secret.Data, items, optional)
}

func (v *volumes) fromConfigMap(ctx context.Context, namespace, name string, items []corev1.KeyToPath, optional *bool) (map[string][]byte, error) {
	configMap := &corev1.ConfigMap{}
	if err := v.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, configMap); err != nil {
		if optional != nil && *optional {
			err = client.IgnoreNotFound(err)
		}
		if err != nil {
			return nil, fmt.Errorf("could not read config map %s: %w", name, err)
		}
	}
	data := maps.Clone(configMap.BinaryData)
	if data == nil {
		data = map[string][]byte{}
	}
	for key, value := range configMap.Data {
		data[key] = []byte(value)
	}
	return selectItems("config map "+name, data, items, optional)
}

// selectItems returns the files for the items, or for all of the data if there are none.
func selectItems(source string, data map[string][]byte, items []corev1.KeyToPath, optional *bool) (map[string][]byte, error) {
	if len(items) == 0 {
		return data, nil
	}
	files := map[string][]byte{}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok {
			if optional != nil && *optional {
				continue
			}
			return nil, fmt.Errorf("%s has no key %q", source, item.Key)
		}
		files[item.Path] = value
	}
	return files, nil
}

// token returns a token of the pod's service account. It is bound to the pod, as the kubelet's are, and refreshed after
// 80 % of its lifetime.
func (v *volumes) token(ctx context.Context, pod *corev1.Pod, volumeName string, projection *corev1.ServiceAccountTokenProjection) (string, error) {
	key := filepath.Join(volumeName, projection.Path)
	if token, ok := v.tokens[key]; ok && time.Now().Before(token.refresh) {
		return token.value, nil
	}

	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: projection.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if projection.Audience != "" {
		request.Spec.Audiences = []string{projection.Audience}
	}
	serviceAccount := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Spec.ServiceAccountName}}
	if err := v.client.SubResource("token").Create(ctx, serviceAccount, request); err != nil {
		return "", fmt.Errorf("could not request a token of service account %s: %w", serviceAccount.Name, err)
	}
	lifetime := time.Until(request.Status.ExpirationTimestamp.Time)
	v.tokens[key] = token{value: request.Status.Token, refresh: time.Now().Add(lifetime * 8 / 10)}
	return request.Status.Token, nil
}

// writeFiles makes the directory contain the files. Other files are kept: a container may have written them.
func writeFiles(dir string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		if present, err := os.ReadFile(path); err == nil && bytes.Equal(present, content) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		// A reader must never see half of a file.
		temporary := path + ".new"
		if err := os.WriteFile(temporary, content, 0o600); err != nil {
			return err
		}
		if err := os.Rename(temporary, path); err != nil {
			return err
		}
	}
	return nil
}
