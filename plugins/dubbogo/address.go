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

// openURL returns the client of a registry's URL, which registries with the same address share.
// Parameters of dubbo-go itself are not passed on.
func openURL(pool *adapter.Pool, scheme string, u *common.URL) (*client.Client, error) {
	if u.Password != "" {
		return nil, errors.New("password: must not be in the address; set passwordFile in params to a file that holds it")
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
	defaults := map[string]string{"group": group, "username": u.Username}
	switch kind, _, _ := strings.Cut(scheme, "+"); kind {
	case "zookeeper":
		path, defaults = cmp.Or(path, strings.Trim(group, "/")), map[string]string{"user": u.Username}
	case "nacos":
		path = cmp.Or(path, namespace)
	default:
		defaults["namespace"] = namespace
	}
	for name, value := range defaults {
		if value != "" && !params.Has(name) {
			params.Set(name, value)
		}
	}
	// DrainDelay is short, because dubbo-go serves for consumer-update-wait-time after unregistering.
	// Grace is short, because dubbo-go stops its servers before it closes clients, and again one
	// step-timeout of 3 s later, which panics.
	o := client.Options{
		StateFile: u.GetParam(stateFile, ""), DrainDelay: 10 * time.Millisecond, Grace: time.Second, Log: Log(slog.LevelInfo),
	}
	return pool.Open(scheme+"://"+servers+"/"+path+"?"+params.Encode(), o, all.Kinds()...)
}

// Parameters of a registry that client.Open does not have.
const (
	stateFile = "stateFile" // as in client.Options
	backup    = "backup"    // further servers
)
