import { randomBytes } from "node:crypto";
import { AwsError } from "./errors.ts";

// The simulated AWS Secrets Manager: the operations that sync calls, on secrets in memory.

const ACCOUNT = "123456789012";
const DAY_MS = 86_400_000;
const MAX_VALUE_BYTES = 65_536;
const MAX_TAGS = 50;
/** Staging labels of the current and the previous version. */
const [CURRENT, PREVIOUS] = ["AWSCURRENT", "AWSPREVIOUS"];

interface Tag {
  Key: string;
  Value: string;
}

interface Version {
  id: string;
  value: string;
  /** Staging labels. Each label is on at most one version of a secret. */
  stages: Set<string>;
}

interface Secret {
  arn: string;
  name: string;
  description?: string | undefined;
  tags: Map<string, string>;
  versions: Version[];
  /** `created` and `changed` are in Unix milliseconds. */
  created: number;
  changed: number;
  /** End of the recovery window in Unix milliseconds, if the secret is scheduled for deletion. */
  purgeAt?: number;
  owningService?: string;
  primaryRegion: string;
}

type Body = Record<string, unknown>;

/**
 * Simulates AWS Secrets Manager: https://docs.aws.amazon.com/secretsmanager/latest/apireference. A secret that is scheduled for
 * deletion can only be described and restored until its recovery window ends.
 */
export class SecretsManager {
  /** Key: region and name, `eu-west-1/app/key`. */
  readonly #secrets = new Map<string, Secret>();

  /** Returns all values that a secret had, oldest first. Tests count writes with it. */
  history(region: string, name: string): string[] {
    return (this.#secrets.get(`${region}/${name}`)?.versions ?? []).map(({ value }) => value);
  }

  /** Returns the number of versions of all secrets. */
  written(): number {
    return [...this.#secrets.values()].reduce((sum, { versions }) => sum + versions.length, 0);
  }

  /** Returns the current value. Undefined if there is none or the secret is scheduled for deletion. */
  value(region: string, name: string): string | undefined {
    const secret = this.#secrets.get(`${region}/${name}`);
    return secret?.purgeAt === undefined ? secret && current(secret)?.value : undefined;
  }

  /** Changes members that no client can set: the owning service and the primary region. */
  change(region: string, name: string, change: { owningService?: string; primaryRegion?: string }): void {
    Object.assign(this.#existing(region, { SecretId: name }), change);
  }

  /**
   * Runs an operation.
   * @throws {AwsError}
   */
  operation(region: string, name: string, body: Body): object {
    switch (name) {
      case "CreateSecret":
        return this.#create(region, body);
      case "PutSecretValue":
        return this.#put(region, body);
      case "DescribeSecret":
        return describe(this.#existing(region, body));
      case "GetSecretValue":
        return this.#get(region, body);
      case "TagResource":
        return this.#tag(region, body);
      case "UpdateSecretVersionStage":
        return this.#updateStage(region, body);
      case "DeleteSecret":
        return this.#delete(region, body);
      case "RestoreSecret":
        return this.#restore(region, body);
      case "ListSecrets":
        return this.#list(region, body);
      default:
        throw new AwsError("UnknownOperationException", `${name} is not supported.`);
    }
  }

  #existing(region: string, { SecretId: id }: Body): Secret {
    if (typeof id !== "string" || id === "") throw invalidParameter("You must provide a value for SecretId.");
    const secret = [...this.#secrets].find(([key, { arn }]) => key === `${region}/${id}` || arn === id)?.[1];
    // The recovery window has ended, so the secret no longer exists.
    if (secret?.purgeAt !== undefined && secret.purgeAt < Date.now()) {
      this.#secrets.delete(`${region}/${secret.name}`);
      return this.#existing(region, { SecretId: id });
    }
    if (!secret) throw new AwsError("ResourceNotFoundException", "Secrets Manager can't find the specified secret.");
    return secret;
  }

  /** Returns a secret that is not scheduled for deletion. */
  #usable(region: string, body: Body): Secret {
    const secret = this.#existing(region, body);
    if (secret.purgeAt !== undefined) {
      throw invalidRequest("You can't perform this operation on the secret because it was marked for deletion.");
    }
    return secret;
  }

  /** Returns a secret whose values clients can change. */
  #writable(region: string, body: Body): Secret {
    const secret = this.#usable(region, body);
    if (secret.owningService) throw invalidRequest(`The secret is managed by ${secret.owningService}.`);
    if (secret.primaryRegion !== region) throw invalidRequest("Operation not permitted on a replica secret.");
    return secret;
  }

  #create(region: string, body: Body): object {
    const { Name: name, Description: description, Tags: tags } = body;
    if (typeof name !== "string" || !/^[A-Za-z0-9/_+=.@-]{1,512}$/.test(name)) {
      throw new AwsError(
        "ValidationException",
        "Invalid name. Must be a valid name containing alphanumeric characters.",
      );
    }
    const [token, value] = [parseToken(body), parseValue(body)];
    const key = `${region}/${name}`;
    const existing = this.#secrets.get(key);
    if (existing) {
      if (existing.purgeAt !== undefined) {
        throw invalidRequest(
          "You can't create this secret because a secret with this name is already scheduled for deletion.",
        );
      }
      // A repeated request with the same token and value succeeds.
      if (existing.versions.some((one) => one.id === token && one.value === value))
        return versionResponse(existing, token);
      throw exists(`The operation failed because the secret ${name} already exists.`);
    }
    const now = Date.now();
    const secret: Secret = {
      arn: `arn:aws:secretsmanager:${region}:${ACCOUNT}:secret:${name}-${randomBytes(3).toString("hex")}`,
      name,
      ...(typeof description === "string" && { description }),
      tags: new Map(tagsIn(tags)),
      versions: [{ id: token, value, stages: new Set([CURRENT!]) }],
      created: now,
      changed: now,
      primaryRegion: region,
    };
    this.#secrets.set(key, secret);
    return versionResponse(secret, token);
  }

  #put(region: string, body: Body): object {
    const secret = this.#writable(region, body);
    const [token, value] = [parseToken(body), parseValue(body)];
    const existing = secret.versions.find(({ id }) => id === token);
    if (existing) {
      if (existing.value === value) return { ...versionResponse(secret, token), VersionStages: [...existing.stages] };
      throw exists("The version already exists with another value: a version can't be changed.");
    }
    const stages = Array.isArray(body.VersionStages) ? (body.VersionStages as string[]) : [CURRENT!];
    secret.versions.push({ id: token, value, stages: new Set() });
    for (const stage of stages) moveStage(secret, stage, token);
    secret.changed = Date.now();
    return { ...versionResponse(secret, token), VersionStages: stages };
  }

  #get(region: string, body: Body): object {
    const secret = this.#usable(region, body);
    const stage = typeof body.VersionStage === "string" ? body.VersionStage : CURRENT!;
    const version = secret.versions.find(({ id, stages }) =>
      body.VersionId === undefined ? stages.has(stage) : id === body.VersionId,
    );
    if (!version) {
      throw new AwsError("ResourceNotFoundException", `Secrets Manager can't find the secret value for ${stage}.`);
    }
    return { ...versionResponse(secret, version.id), SecretString: version.value, VersionStages: [...version.stages] };
  }

  #tag(region: string, body: Body): object {
    const secret = this.#usable(region, body);
    for (const [key, value] of tagsIn(body.Tags)) secret.tags.set(key, value);
    return {};
  }

  #updateStage(region: string, body: Body): object {
    const secret = this.#writable(region, body);
    const { VersionStage: stage, MoveToVersionId: to, RemoveFromVersionId: from } = body;
    if (typeof stage !== "string") throw invalidParameter("You must provide a value for VersionStage.");
    const labeledVersion = secret.versions.find(({ stages }) => stages.has(stage));
    if (typeof to === "string" && !secret.versions.some(({ id }) => id === to)) {
      throw new AwsError("ResourceNotFoundException", "Secrets Manager can't find the specified secret version.");
    }
    if (labeledVersion && labeledVersion.id !== from) {
      throw invalidParameter(
        `The parameter RemoveFromVersionId can't be empty or another: ${stage} is on ${labeledVersion.id}.`,
      );
    }
    if (typeof to === "string") moveStage(secret, stage, to);
    else if (stage === CURRENT) throw invalidParameter("AWSCURRENT can't be removed without being moved.");
    else labeledVersion?.stages.delete(stage);
    return { ARN: secret.arn, Name: secret.name };
  }

  #delete(region: string, body: Body): object {
    const secret = this.#existing(region, body);
    const { RecoveryWindowInDays: days = 30, ForceDeleteWithoutRecovery: force } = body;
    if (force === true) {
      this.#secrets.delete(`${region}/${secret.name}`);
      return { ARN: secret.arn, Name: secret.name, DeletionDate: seconds(Date.now()) };
    }
    if (typeof days !== "number" || days < 7 || days > 30) {
      throw invalidParameter("The RecoveryWindowInDays value must be between 7 and 30 days (inclusive).");
    }
    if (secret.purgeAt !== undefined) {
      throw invalidRequest(
        "You can't perform this operation on the secret because it was already scheduled for deletion.",
      );
    }
    secret.purgeAt = Date.now() + days * DAY_MS;
    return { ARN: secret.arn, Name: secret.name, DeletionDate: seconds(secret.purgeAt) };
  }

  #restore(region: string, body: Body): object {
    const secret = this.#existing(region, body);
    delete secret.purgeAt;
    return { ARN: secret.arn, Name: secret.name };
  }

  #list(region: string, body: Body): object {
    const { MaxResults: maxResults = 100, NextToken: token } = body;
    if (typeof maxResults !== "number" || maxResults < 1 || maxResults > 100)
      throw invalidParameter("MaxResults must be 1 to 100.");
    const start = token === undefined ? 0 : Number(token);
    if (!Number.isInteger(start)) throw new AwsError("InvalidNextTokenException", "The NextToken value is invalid.");
    const existing = [...this.#secrets].filter(
      ([key, one]) => key.startsWith(`${region}/`) && one.purgeAt === undefined,
    );
    const nextToken = existing.length > start + maxResults ? { NextToken: String(start + maxResults) } : {};
    return {
      SecretList: existing.slice(start, start + maxResults).map(([, secret]) => describe(secret)),
      ...nextToken,
    };
  }
}

function describe(secret: Secret): object {
  const staged = secret.versions.filter(({ stages }) => stages.size > 0);
  return {
    ARN: secret.arn,
    Name: secret.name,
    Description: secret.description,
    Tags: [...secret.tags].map(([Key, Value]) => ({ Key, Value })),
    // Versions without a staging label are deprecated and not listed.
    VersionIdsToStages: Object.fromEntries(staged.map(({ id, stages }) => [id, [...stages]])),
    CreatedDate: seconds(secret.created),
    LastChangedDate: seconds(secret.changed),
    DeletedDate: secret.purgeAt === undefined ? undefined : seconds(secret.purgeAt),
    OwningService: secret.owningService,
    PrimaryRegion: secret.primaryRegion,
  };
}

const current = (secret: Secret): Version | undefined => secret.versions.find(({ stages }) => stages.has(CURRENT!));

/** Moves a staging label to a version. The former current version gets the label of the previous version. */
function moveStage(secret: Secret, stage: string, to: string): void {
  const from = secret.versions.find(({ stages }) => stages.has(stage));
  const target = secret.versions.find(({ id }) => id === to)!;
  if (from === target) return;
  if (stage === CURRENT && from) {
    for (const { stages } of secret.versions) stages.delete(PREVIOUS!);
    from.stages.add(PREVIOUS!);
  }
  from?.stages.delete(stage);
  target.stages.add(stage);
}

/** Returns the client's request token, which becomes the ID of the new version. */
function parseToken({ ClientRequestToken: token }: Body): string {
  if (typeof token !== "string") throw invalidRequest("You must provide a ClientRequestToken value.");
  if (token.length < 32 || token.length > 64)
    throw invalidParameter("ClientRequestToken must have 32 to 64 characters.");
  return token;
}

function parseValue({ SecretString: value }: Body): string {
  if (typeof value !== "string" || value === "")
    throw invalidRequest("You must provide either SecretString or SecretBinary.");
  if (Buffer.byteLength(value) > MAX_VALUE_BYTES)
    throw new AwsError("ValidationException", "SecretString is longer than 65536 bytes.");
  return value;
}

function tagsIn(tags: unknown): [string, string][] {
  const list = (Array.isArray(tags) ? tags : []) as Tag[];
  if (list.length > MAX_TAGS) throw invalidParameter("A secret can have at most 50 tags.");
  for (const { Key, Value } of list) {
    if (!/^(?!aws:)[\p{L}\p{Z}\p{N}_.:/=+\-@]{1,128}$/u.test(Key))
      throw invalidParameter(`The tag key ${Key} is invalid.`);
    if (!/^[\p{L}\p{Z}\p{N}_.:/=+\-@]{0,256}$/u.test(Value)) throw invalidParameter("A tag value is invalid.");
  }
  return list.map(({ Key, Value }) => [Key, Value]);
}

/** Returns the response of an operation that writes or reads a version. */
const versionResponse = ({ arn, name }: Secret, id: string) => ({ ARN: arn, Name: name, VersionId: id });
const seconds = (milliseconds: number) => milliseconds / 1000;
const invalidParameter = (message: string) => new AwsError("InvalidParameterException", message);
const invalidRequest = (message: string) => new AwsError("InvalidRequestException", message);
const exists = (message: string) => new AwsError("ResourceExistsException", message);
