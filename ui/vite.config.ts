import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';

import { defineConfig, type Plugin } from 'vite';

// `npm run dev` talks to a running program, or to `npm run mock`.
const server = process.env['HOPWISE_URL'] ?? 'http://127.0.0.1:8179';

export default defineConfig({
  base: './',
  plugins: [compress()],
  build: {
    target: 'es2022',
    // The program's content policy allows no data: addresses, so nothing is inlined.
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 700,
    reportCompressedSize: false,
  },
  server: {
    proxy: {
      '/api': {
        target: server,
        changeOrigin: true,
        // The program refuses requests from the pages of other sites. In development that other site is this server.
        configure: (proxy) => proxy.on('proxyReq', (request) => request.removeHeader('origin')),
      },
    },
  },
});

/** Writes a gzip file beside each text file of the build, which the program serves to browsers that accept it. */
function compress(): Plugin {
  return {
    name: 'compress',
    apply: 'build',
    writeBundle({ dir = 'dist' }) {
      for (const name of readdirSync(dir, { recursive: true, encoding: 'utf8' })) {
        if (!/\.(html|js|css|svg|json|txt)$/.test(name)) continue;
        const plain = readFileSync(join(dir, name));
        const compressed = gzipSync(plain, { level: 9 });
        // A small file may grow; then only the plain one is served.
        if (compressed.length < plain.length) writeFileSync(join(dir, `${name}.gz`), compressed);
      }
    },
  };
}
