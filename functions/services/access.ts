import { type Access, createAccess } from "../../shared/access/access.ts";
import { createEntraTokens } from "../../shared/access/entra.ts";
import { type ApprovalService, createApprovals } from "../../shared/approvals/approvals.ts";
import { createArm } from "../../shared/platform/azure/arm.ts";
import { readAssignmentRecord } from "../../shared/platform/azure/role-assignments.ts";
import { keyVaultSecondFactorKeys } from "../../shared/platform/azure/row-keys.ts";
import type { Gate } from "../../shared/platform/http/admission.ts";
import { createIdempotencyStore, type IdempotencyStore } from "../../shared/platform/http/idempotency.ts";
import { createRateLimiter, type RateLimiter } from "../../shared/platform/http/rate-limit.ts";
import { createProposals, type ProposalService } from "../../shared/proposals/proposals.ts";
import { createSso, type Sso } from "../../shared/sso/sso.ts";
import { createGate } from "../gate.ts";
import type { Platform } from "./platform.ts";

/**
 * Limits of the call that reads the role assignment of `POST /auth/bootstrap/azure`. Anyone can cause this call, and the client
 * repeats its request, so the service sends one request and does not retry it.
 */
const ONE_REQUEST = { throttledTries: 1, concurrencyTries: 1, unreachableTries: 1, requestTimeoutMs: 10_000 };
/**
 * Limits of sign-ins for each address and each username:
 * https://owasp.org/API-Security/editions/2023/en/0xa2-broken-authentication/
 */
const SIGN_IN_LIMITS = { perMinute: 10, perHour: 100 };

/**
 * Limits of `POST /auth/sso/discover`, which needs no credential, for each address. 0: no hourly limit. The endpoint's
 * description states the limit.
 */
const DISCOVER_LIMITS = { perMinute: 10, perHour: 0 };

/** Users, sign-ins, rate limits and the checks before each endpoint. */
export interface AccessServices {
  access: Access;
  approvals: ApprovalService;
  proposals: ProposalService;
  sso: Sso;
  limiter: RateLimiter;
  signInLimiter: RateLimiter;
  idempotency: IdempotencyStore;
  gate: Gate;
}

export function createAccessServices(platform: Platform): AccessServices {
  const { config, clock, randomness, log, tables, audit, licensing, settings, serviceKeyVault, storeFormat } = platform;
  const { identity } = platform;
  const limits = { perMinute: config.RATE_LIMIT_PER_MINUTE, perHour: config.RATE_LIMIT_PER_HOUR };
  const limiter = createRateLimiter({ tables, clock, name: "calls", limits });
  const signInLimiter = createRateLimiter({ tables, clock, name: "signIn", limits: SIGN_IN_LIMITS });
  const access = createAccess({
    tables,
    config,
    clock,
    randomness,
    audit,
    log,
    limiter: signInLimiter,
    entra: createEntraTokens({ config, clock, log }),
    // Single sign-on can forbid passwords, and it can assign the roles of its users. It is created below.
    passwordSignIn: (username) => sso.passwordSignIn(username),
    roleMapped: () => sso.roleMapped(),
    passwordSettings: () => settings.values(),
    readAssignment: (id) => readAssignmentRecord(createArm({ config, identity, log, limits: ONE_REQUEST }), id),
    secondFactorKeys: serviceKeyVault && keyVaultSecondFactorKeys(serviceKeyVault, randomness),
  });
  const sso: Sso = createSso({
    tables,
    config,
    audit,
    access,
    licensing,
    vault: serviceKeyVault,
    signInLimiter,
    callLimiter: limiter,
    discoverLimiter: createRateLimiter({ tables, clock, name: "ssoDiscover", limits: DISCOVER_LIMITS }),
    clock,
    randomness,
    log,
  });
  const { administrators } = access;
  const approvals = createApprovals({ tables, administrators, audit, config, clock, randomness });
  const proposals = createProposals({ tables, administrators, audit, clock, randomness });
  const idempotency = createIdempotencyStore({ tables, config, clock, randomness });
  const gate = createGate({
    access,
    licensing,
    audit,
    limiter,
    signInLimiter,
    storeFormat,
    settings,
    approvals,
    idempotency,
  });
  return { access, approvals, proposals, sso, limiter, signInLimiter, idempotency, gate };
}
