"""A REST catalog as Iceberg's own tests run it: Java, on loopback, with SQLite behind it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from tests.interop.fetch_jars import fetched_jars, java_executable, spark_jars


class RestServer:
    """A catalog's server in a JVM of its own, which ends with this process at the latest.

    The server is put together from here because the one that Iceberg ships listens on every
    address of the machine.
    """

    def __init__(self, folder: Path) -> None:
        port, token = launch_gateway(
            classpath=os.pathsep.join(
                [
                    *fetched_jars("server"),
                    *spark_jars("hadoop-client-*.jar"),
                    *spark_jars("log4j-*.jar"),
                    *spark_jars("jcl-over-slf4j-*.jar"),
                ]
            ),
            java_path=java_executable(),
            javaopts=["-Dlog4j2.level=ERROR"],
            redirect_stdout=sys.stderr,
            redirect_stderr=sys.stderr,
            enable_auth=True,
            die_on_exit=True,
        )
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True)
        )
        self._server = self._started(folder)
        port = self._server.getConnectors()[0].getLocalPort()
        self.uri = f"http://127.0.0.1:{port}"

    def stop(self) -> None:
        """Stop serving, and end the JVM."""
        self._server.stop()
        self._gateway.shutdown()

    def _started(self, folder: Path) -> Any:
        java = self._gateway.jvm
        backend = java.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(
            "backend",
            {
                "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
                "uri": f"jdbc:sqlite:{folder}/catalog.db",
                "jdbc.schema-version": "V1",
                "warehouse": f"file://{folder}/warehouse",
            },
            java.org.apache.hadoop.conf.Configuration(),
        )
        adapter = java.org.apache.iceberg.rest.RESTCatalogAdapter(backend)
        servlet = java.org.apache.iceberg.rest.RESTCatalogServlet(adapter)
        jetty = java.org.eclipse.jetty
        context = jetty.ee10.servlet.ServletContextHandler()
        context.addServlet(jetty.ee10.servlet.ServletHolder(servlet), "/*")
        server = jetty.server.Server(java.java.net.InetSocketAddress("127.0.0.1", 0))
        server.setHandler(context)
        server.start()
        return server
