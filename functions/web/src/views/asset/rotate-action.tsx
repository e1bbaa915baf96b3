import { Link, Spinner, Text } from "@fluentui/react-components";
import { useMay } from "../../api/access.ts";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { renewCommand } from "../../parts/asset-commands.ts";
import { isolated } from "../../parts/isolated.ts";
import { textsOfKind } from "../../parts/key-credential.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { RotateAsset } from "../../parts/rotate-asset.tsx";
import { RotateCredential } from "../../parts/rotate-credential.tsx";
import { KeyRotationState } from "../../parts/rotate-key.tsx";
import { RotateConfirmed, RotationReadiness, rotationBlockers } from "../../parts/rotation-readiness.tsx";
import { Unavailable, useWhyNot } from "../../parts/unavailable.tsx";
import { CREATE_IN_TENANT } from "./command-actions.tsx";
import { useStoredKey } from "./stored-key.ts";

interface Props {
  asset: Schemas["AssetDetails"];
  /** Called with the ID of the rotation that the user started. */
  started(rotationId: string): void;
}

/** The action that replaces a secret, or why the service can't replace it. */
export function RotateAction(props: Props) {
  // Without this permission, the page can't read whether a vault secret stores a key.
  const canKnowKey = useMay()("listRotationCredentials");
  return canKnowKey && props.asset.source === "keyVault" ? (
    <RotateKeyOrSecret {...props} />
  ) : (
    <RotateSecret {...props} />
  );
}

/**
 * The action for a vault secret, which rotates the key of an Azure resource if a discovery found that the secret stores one, or
 * the login of a database for which the secret is registered.
 */
function RotateKeyOrSecret(props: Props) {
  const { credential, isPending } = useStoredKey(props.asset.id);
  if (isPending) return <Spinner size="tiny" label="Loading" />;
  return credential === undefined ? (
    <RotateSecret {...props} />
  ) : (
    <RotateCredential credential={credential} started={props.started} />
  );
}

/** The action for a secret that stores no key, or why no rotation is possible. */
function RotateSecret({ asset, started }: Props) {
  const whyNot = useWhyNot();
  const isOfApplication = asset.source === "entra";
  const reason = unsupported(asset) ?? whyNot(isOfApplication ? "rotateSecret" : "rotateAsset");
  if (reason !== undefined) return <Unavailable title="Rotate secret" reason={reason} />;
  return isOfApplication ? (
    <RotateApplicationSecret asset={asset} started={started} />
  ) : (
    <RotateAsset assetId={asset.id} name={asset.name} started={started} />
  );
}

/** Returns why no role can rotate the secret here, and what to do. Undefined if the service can rotate it. */
function unsupported(asset: Props["asset"]): string | undefined {
  const { source, credential } = asset;
  if (source === "b2c")
    return `The service can't create credentials in B2C tenants. ${renewCommand(asset) === undefined ? CREATE_IN_TENANT : "Select Copy Azure CLI command instead."}`;
  if (credential?.of === "servicePrincipal")
    return "The secret belongs to a service principal. Rotate it where the application is registered.";
  return undefined;
}

function RotateApplicationSecret({ asset: { credential }, started }: Props) {
  const application = api.useQuery("get", "/api/automation/rotation/apps/{app_id}", {
    params: { path: { app_id: credential?.appId ?? "" } },
  });
  return (
    <QueryResult of={application}>
      {(data) => {
        const current = data.credentials.find(({ keyId }) => keyId === credential?.keyId);
        if (current === undefined)
          return <Unavailable title="Rotate secret" reason="The application no longer has this secret." />;
        // `RotationReadiness` above the actions gives the reason and the fix.
        return rotationBlockers(data).length === 0 ? (
          <RotateConfirmed application={data} credential={current} appearance="primary" started={started} />
        ) : (
          <Unavailable title="Rotate secret" reason="Not possible now. The reason is above." />
        );
      }}
    </QueryResult>
  );
}

/**
 * The state of the rotation of a client secret, or of a key of an Azure resource that a vault secret stores, above the actions.
 * Empty for other assets, or without a license.
 */
export function Readiness({ asset: { id, source, type, credential } }: Pick<Props, "asset">) {
  const whyNot = useWhyNot();
  const may = useMay();
  if (source === "keyVault" && type === "secret" && may("listRotationCredentials"))
    return <KeyReadiness assetId={id} />;
  if (source !== "entra" || type !== "secret" || credential?.of === "servicePrincipal") return null;
  if (whyNot("getApplication") !== undefined || whyNot("listRotationMatches") !== undefined) return null;
  return <ReadinessOf appId={credential?.appId ?? ""} keyId={credential?.keyId} />;
}

function ReadinessOf({ appId, keyId }: { appId: string; keyId: string | undefined }) {
  const application = api.useQuery("get", "/api/automation/rotation/apps/{app_id}", {
    params: { path: { app_id: appId } },
  });
  return (
    <QueryResult of={application}>
      {(data) => {
        const current = data.credentials.find((item) => item.keyId === keyId);
        return current && <RotationReadiness application={data} credential={current} />;
      }}
    </QueryResult>
  );
}

/** The key or the database login that the vault secret stores, and what a rotation would do. Empty if it stores none. */
function KeyReadiness({ assetId }: { assetId: string }) {
  const { credential } = useStoredKey(assetId);
  if (credential === undefined) return null;
  const { credentialId, kind, title, resourceName } = credential;
  return (
    <div>
      <Text block>
        This secret stores {textsOfKind(kind, `a key of the ${title}`, `a ${title} of the server`)}{" "}
        <Link href={createHref(`/credentials/${credentialId}`)}>{isolated(resourceName)}</Link>.
      </Text>
      <KeyRotationState credential={credential} />
    </div>
  );
}
