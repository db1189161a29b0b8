package dubbogo

import (
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/client/all"
	"github.com/xds-bridge/xds-bridge/plugins/internal/adapter"
)

// opened returns the client of a registry's URL, which others of its address share. Of
// the parameters it reads those that are not dubbo-go's own.
func opened(pool *adapter.Pool, scheme string, u *common.URL) (*client.Client, error) {
	if u.Password != "" {
		return nil, errors.New("password: name the file that holds it as passwordFile in params")
	}
	params := make(url.Values)
	maps.Copy(params, u.GetParams())
	maps.DeleteFunc(params, func(name string, _ []string) bool {
		own := []string{constant.RegistrySimplifiedKey, constant.ClientNameKey, stateFile, backup}
		return name == constant.RegistryKey || strings.HasPrefix(name, constant.RegistryKey+".") || slices.Contains(own, name)
	})
	servers, path, _ := strings.Cut(u.Location, "/")
	servers = strings.Trim(servers+","+u.GetParam(backup, ""), ",")
	path = cmp.Or(path, strings.Trim(u.Path, "/"))
	group, namespace := u.GetParam(constant.RegistryGroupKey, ""), u.GetParam(constant.RegistryNamespaceKey, "")
	notified := map[string]string{"group": group, "username": u.Username}
	switch kind, _, _ := strings.Cut(scheme, "+"); kind {
	case "zookeeper":
		path, notified = cmp.Or(path, strings.Trim(group, "/")), map[string]string{"user": u.Username}
	case "nacos":
		path = cmp.Or(path, namespace)
	default:
		notified["namespace"] = namespace
	}
	for name, value := range notified {
		if value != "" && !params.Has(name) {
			params.Set(name, value)
		}
	}
	// DrainDelay is short, as dubbo-go serves on for consumer-update-wait-time after it unregistered.
	// So is Grace: dubbo-go stops its servers before it closes clients, and once more,
	// which panics, a step-timeout of 3 s later.
	o := client.Options{StateFile: u.GetParam(stateFile, ""), DrainDelay: 10 * time.Millisecond, Grace: time.Second, Log: Log(slog.LevelInfo)}
	return pool.Open(scheme+"://"+servers+"/"+path+"?"+params.Encode(), o, all.Kinds()...)
}

// Parameters of a registry that are not those of client.Open.
const (
	stateFile = "stateFile" // as in client.Options
	backup    = "backup"    // further servers
)
