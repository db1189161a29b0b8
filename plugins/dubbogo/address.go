package dubbogo

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"

	"github.com/xds-bridge/xds-bridge/plugins/client"
)

// opened returns the client of a registry's URL, which others of its address share.
func opened(pool *client.Pool, scheme string, u *common.URL) (*client.Client, error) {
	address, err := addressOf(scheme, u)
	if err != nil {
		return nil, err
	}
	return pool.Open(address, client.Options{StateFile: u.GetParam(stateFile, ""), Settle: settle, Log: Log(slog.LevelInfo)}) //nolint:wrapcheck // it names the parameter
}

// addressOf returns the URL of a registry as client.FromURL takes it. Parameters that
// are dubbo-go's own are left out.
func addressOf(scheme string, u *common.URL) (string, error) {
	if u.Password != "" {
		return "", errors.New("password: name the file that holds it as passwordFile in params")
	}
	params := make(url.Values)
	for name, all := range u.GetParams() {
		switch own, _, _ := strings.Cut(name, "."); {
		case own == constant.RegistryKey, name == constant.RegistrySimplifiedKey, name == constant.ClientNameKey, name == stateFile, name == backup:
		default:
			params[name] = all
		}
	}
	servers, path, _ := strings.Cut(u.Location, "/")
	servers = strings.Trim(servers+","+u.GetParam(backup, ""), ",")
	path = cmp.Or(path, strings.Trim(u.Path, "/"))
	group, namespace := u.GetParam(constant.RegistryGroupKey, ""), u.GetParam(constant.RegistryNamespaceKey, "")
	host, _ := os.Hostname()
	told := map[string]string{"identity": cmp.Or(os.Getenv("POD_NAME"), fmt.Sprintf("%s-%d", host, os.Getpid()))}
	switch kind, _, _ := strings.Cut(scheme, "+"); kind {
	case "zookeeper":
		path = cmp.Or(path, strings.Trim(group, "/"))
		told["user"] = u.Username
	case "nacos":
		path = cmp.Or(path, namespace)
		told["group"], told["username"] = group, u.Username
	default:
		told = map[string]string{
			"name": cmp.Or(os.Getenv("POD_NAME"), host), "namespace": namespace, "ip": cmp.Or(os.Getenv("POD_IP"), common.GetLocalIp()),
			"group": group, "username": u.Username,
		}
	}
	for name, value := range told {
		if value != "" && !params.Has(name) {
			params.Set(name, value)
		}
	}
	return scheme + "://" + servers + "/" + path + "?" + params.Encode(), nil
}

// Parameters of a registry that are not those of client.FromURL.
const (
	stateFile = "stateFile" // as in client.Options
	backup    = "backup"    // further servers
)
