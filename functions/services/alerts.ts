import { type Alerts, createAlerts } from "../../shared/alerts/alerts.ts";
import { createEndpointNotices } from "../../shared/alerts/endpoint-notices.ts";
import { createKeyRotationNotices } from "../../shared/alerts/key-rotation-notices.ts";
import { createReferenceNotices } from "../../shared/alerts/reference-notices.ts";
import { createStorageNotices } from "../../shared/alerts/storage-notices.ts";
import { createStreamNotices } from "../../shared/alerts/stream-notices.ts";
import { createSyncNotices } from "../../shared/alerts/sync-notices.ts";
import { createUsageNotices } from "../../shared/alerts/usage-notices.ts";
import type { B2c } from "../../shared/b2c/b2c.ts";
import type { Compliance } from "../../shared/compliance/compliance.ts";
import { principalOf } from "../../shared/platform/azure/identity.ts";
import type { AuditStreams } from "../../shared/siem/siem.ts";
import type { Sync } from "../../shared/sync/sync.ts";
import type { AccessServices } from "./access.ts";
import type { AutomationServices } from "./automation.ts";
import type { Platform } from "./platform.ts";

/**
 * Creates the module of alerts, which notifies people of expiring and expired assets, violations, failed scans, and credentials
 * of the service itself.
 *
 * @param later - Returns services that are created after this one. It is called when alerts are evaluated.
 */
export function createAlertServices(
  platform: Platform,
  {
    access,
    sso,
    compliance,
    sync,
    auditStreams,
  }: Pick<AccessServices, "access" | "sso"> & { compliance: Compliance; sync: Sync; auditStreams: AuditStreams },
  later: () => Pick<
    AutomationServices,
    "dependencies" | "logs" | "rotationNotices" | "certificateEndpoints" | "keyRotation"
  > & {
    b2c: B2c;
  },
): Alerts {
  const { config, clock, randomness, log, tables, queues, settings, audit, mail, serviceKeyVault, identity } = platform;
  const { licensed, licensing, unreadableRows } = platform;
  return createAlerts({
    tables,
    queues,
    settings,
    audit,
    config,
    clock,
    randomness,
    log,
    mail,
    vault: serviceKeyVault,
    licensed,
    identity: () => principalOf(identity),
    violations: compliance,
    // Credentials of the service itself that expire, such as API tokens and the license.
    credentials: [
      access.apiTokens,
      sso,
      licensing,
      sync.configurations,
      { expiring: (latest) => later().b2c.expiring(latest) },
    ],
    entries: audit,
    // Sources of alerts about rotations, sync, unreadable rows, audit streams, unresolved references, unexpected readers and
    // endpoints.
    automation: [
      { notices: (type, from) => later().rotationNotices.notices(type, from) },
      createSyncNotices(sync),
      createStorageNotices(unreadableRows),
      createStreamNotices(auditStreams, { clock }),
      createReferenceNotices({ unresolved: (from) => later().dependencies.references.unresolved(from) }),
      createUsageNotices({ unexpected: (from) => later().logs.usage.unexpected(from) }),
      createKeyRotationNotices({ since: (from) => later().keyRotation.since(from) }),
      createEndpointNotices({ stale: () => later().certificateEndpoints.stale() }, { clock }),
    ],
  });
}
