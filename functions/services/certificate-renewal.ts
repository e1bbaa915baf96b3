import { createAcmeClients } from "../../shared/certificate-renewal/acme.ts";
import { type Authorities, createAuthorities } from "../../shared/certificate-renewal/authorities.ts";
import { createBudgets } from "../../shared/certificate-renewal/budgets.ts";
import { createChallenges } from "../../shared/certificate-renewal/challenges.ts";
import { type CertificateRenewals, createRenewals } from "../../shared/certificate-renewal/renewals.ts";
import { createRenewalInformation } from "../../shared/certificates/renewal-information.ts";
import type { Rescans } from "../../shared/discovery/rescans.ts";
import type { Inventory } from "../../shared/inventory/inventory.ts";
import { createDnsZones } from "../../shared/platform/azure/dns-zones.ts";
import { createVaultCertificates } from "../../shared/platform/azure/vault-certificates.ts";
import { createNameServers } from "../../shared/platform/outgoing/name-servers.ts";
import { createOutgoing, hostAndPort } from "../../shared/platform/outgoing/outgoing.ts";
import { SECOND_MS } from "../../shared/platform/time.ts";
import type { Platform } from "./platform.ts";

/** The modules that issue and renew certificates. */
export interface CertificateRenewalServices {
  certificateAuthorities: Authorities;
  certificateRenewals: CertificateRenewals;
}

export function createCertificateRenewal(
  platform: Platform,
  deps: { inventory: Inventory; rescans: Pick<Rescans, "requestForChange"> },
): CertificateRenewalServices {
  const { config, identity, tables, queues, audit, settings, licensed, serviceKeyVault } = platform;
  const { clock, randomness, log } = platform;
  const privateHosts = new Set(config.PRIVATE_TARGET_HOSTS.map((host) => host.toLowerCase()));
  const authorities = createAuthorities({
    tables,
    audit,
    serviceVault: serviceKeyVault,
    acme: createAcmeClients(config),
    clock,
    randomness,
    log,
  });
  const certificateRenewals = createRenewals({
    tables,
    queues,
    audit,
    config,
    settings,
    inventory: deps.inventory,
    licensed,
    authorities,
    budgets: createBudgets({ tables, clock }),
    challenges: createChallenges({
      config,
      zones: createDnsZones({ config, identity, log }),
      nameServers: createNameServers(config.ACME_DNS_SERVERS),
    }),
    vaults: createVaultCertificates({ config, identity, log }),
    renewalInformation: createRenewalInformation({
      config,
      clock,
      outgoing: createOutgoing({
        timeoutMs: 5 * SECOND_MS,
        maxAnswerBytes: 64 * 1024,
        allowedNetwork: (url) => (privateHosts.has(hostAndPort(url)) ? "named" : "public"),
        plainHttp: () => false,
        remedy: "PRIVATE_TARGET_HOSTS names hosts in the service's own network.",
      }),
    }),
    vaultChanged: (vaultName) => deps.rescans.requestForChange(vaultName),
    clock,
    randomness,
    log,
  });
  return { certificateAuthorities: authorities, certificateRenewals };
}
