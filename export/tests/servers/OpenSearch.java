// One node of OpenSearch in one process, without authentication. Arguments: folder, HTTP port, transport port.

import static org.codelibs.opensearch.runner.OpenSearchRunner.newConfigs;

import org.codelibs.opensearch.runner.OpenSearchRunner;

public class OpenSearch {
    public static void main(String[] args) throws Exception {
        OpenSearchRunner runner = new OpenSearchRunner();
        runner.onBuild((number, settings) -> {
            settings.put("http.host", "127.0.0.1");
            settings.put("http.port", args[1]);
            settings.put("transport.port", args[2]);
            settings.put("discovery.type", "single-node");
        });
        runner.build(newConfigs().basePath(args[0]).numOfNode(1).disableESLogger());
        Thread.currentThread().join();
    }
}
