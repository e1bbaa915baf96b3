import { LicenseView, licenseView } from "../shared/licensing/api.ts";
import { ok } from "../shared/platform/http/reply.ts";
import { endpoint } from "./declare.ts";

const getLicenseStatus = endpoint({
  name: "getLicenseStatus",
  method: "GET",
  route: "system/license/status",
  summary: "Get the license status",
  description: "The license is verified offline. Without a license the tier is core.",
  tag: "System",
  access: "open",
  tier: "core",
  responds: { 200: LicenseView },
  handle: async ({ services }) => ok(licenseView(await services.licensing.status())),
});

export const endpoints = [getLicenseStatus];
