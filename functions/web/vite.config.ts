import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

/**
 * The build of the page, which `infra/build/page.ts` runs. Every file name except index.html contains a hash of the content.
 */
export default defineConfig({
  root: import.meta.dirname,
  // The page is served at `/`. Its files have a path of their own, which the rate limit excludes.
  base: "/page/",
  plugins: [react()],
  build: {
    target: "es2022",
    assetsDir: "",
    // No inlined assets: `data:` URLs would need a weaker Content-Security-Policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
});
