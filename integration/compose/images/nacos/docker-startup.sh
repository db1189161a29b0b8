#!/bin/bash
# Of the official image's variables, those that docker-compose.yml sets.
set -e
home=/home/nacos
mkdir -p $home/conf
cat >$home/conf/application.properties <<END
server.port=8848
nacos.server.main.port=8848
nacos.server.contextPath=/nacos
server.error.include-message=ALWAYS
server.tomcat.accesslog.enabled=false
server.tomcat.basedir=file:$home/tomcat
management.metrics.export.elastic.enabled=false
management.influx.metrics.export.enabled=false
management.metrics.export.influx.enabled=false
management.elastic.metrics.export.enabled=false
spring.autoconfigure.exclude=org.springframework.boot.autoconfigure.jdbc.DataSourceAutoConfiguration,org.springframework.boot.autoconfigure.jdbc.DataSourceTransactionManagerAutoConfiguration
nacos.core.auth.system.type=nacos
nacos.core.auth.enabled=${NACOS_AUTH_ENABLE:-false}
nacos.core.auth.admin.enabled=${NACOS_AUTH_ADMIN_ENABLE:-true}
nacos.core.auth.server.identity.key=${NACOS_AUTH_IDENTITY_KEY:?}
nacos.core.auth.server.identity.value=${NACOS_AUTH_IDENTITY_VALUE:?}
nacos.core.auth.plugin.nacos.token.secret.key=${NACOS_AUTH_TOKEN:?}
nacos.k8s.sync.enabled=false
END
[ "$MODE" = standalone ] || { echo "docker-startup.sh: only MODE=standalone exists here" >&2; exit 2; }
# A busy machine that is too slow for Derby's patience leaves half a database behind, which no later start gets over.
[ -f $home/data/derby-data/service.properties ] || rm -rf $home/data/derby-data
# com.caucho:hessian has to come before com.alipay.sofa:hessian, which carries older copies of its classes.
exec java -Xms"${JVM_XMS:-256m}" -Xmx"${JVM_XMX:-512m}" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
  -Duser.home=$home -Dderby.system.durability=test -Dnacos.standalone=true -Dnacos.home=$home -Dnacos.member.list= \
  -Dspring.config.additional-location=file:$home/conf/ \
  -cp "/nacos/classes:$(echo /nacos/jars/hessian-4*.jar):/nacos/jars/*" NacosMain
