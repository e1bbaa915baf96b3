import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

/** What `infra/build/page.ts` builds. Every file but index.html carries its hash in its name. */
export default defineConfig({
  root: import.meta.dirname,
  // The page lies at `/`; its files lie under an address of their own, which the rate limit leaves out.
  base: "/page/",
  plugins: [react()],
  build: {
    target: "es2022",
    assetsDir: "",
    // Every file is asked for by its name: a `data:` address would need a wider Content-Security-Policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
});
