import { defineConfig } from 'vite';

// `npm run dev` talks to a running program, or to `npm run mock`.
const server = process.env['HOPWISE_URL'] ?? 'http://127.0.0.1:8179';

export default defineConfig({
  base: './',
  build: {
    target: 'es2022',
    // The program's content policy allows no data: addresses, so nothing is inlined.
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 600,
    reportCompressedSize: false,
  },
  server: {
    proxy: {
      '/api': {
        target: server,
        changeOrigin: true,
        // The program refuses requests that come from another site's pages; here the other site is us.
        configure: (proxy) => proxy.on('proxyReq', (request) => request.removeHeader('origin')),
      },
    },
  },
});
