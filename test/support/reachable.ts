import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { getCACertificates, setDefaultCACertificates } from "node:tls";
import type { Cloud } from "../../infra/local/cloud/cloud.ts";
// Names under .localhost mean this machine, in this process too.
import "../../infra/local/loopback-names.mjs";
import { type Config, loadConfig } from "../../shared/config/config.ts";

/**
 * Lets clients in the test's own process call a stand-in cloud, as `NODE_EXTRA_CA_CERTS` does for a process of its own.
 *
 * @returns the configuration of a service that lives in the cloud.
 */
export function reachable(cloud: Cloud): Config {
  const authority = readFileSync(cloud.environment.NODE_EXTRA_CA_CERTS!, "utf8");
  setDefaultCACertificates([...getCACertificates("default"), authority]);
  return loadConfig({
    ...cloud.environment,
    AzureWebJobsStorage: "UseDevelopmentStorage=true",
    JWT_SIGNING_KEYS: `test:${randomBytes(48).toString("base64")}`,
  });
}
