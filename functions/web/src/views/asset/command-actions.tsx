import { Button, Field, Input, Text } from "@fluentui/react-components";
import { useState } from "react";
import { api, type Schemas } from "../../api/client.ts";
import { hasSafeTags, isSafeText, ownerCommand, renewCommand } from "../../parts/asset-commands.ts";
import { CommandDialog } from "../../parts/command-dialog.tsx";
import { Copyable } from "../../parts/copyable.tsx";
import { RENEWERS } from "../../parts/renewers.ts";
import { Unavailable } from "../../parts/unavailable.tsx";

interface Props {
  asset: Schemas["AssetDetails"];
  /** The display name of the asset. */
  name: string;
}

/** The next step for a credential of a tenant for which the Azure CLI has no command. */
export const CREATE_IN_TENANT = "Create a new credential in the tenant: select Open in the Azure portal.";

/** The action that renews a certificate or a key, as a command. A secret has the action Rotate instead. */
export function RenewAction({ asset, name }: Props) {
  if (asset.type === "secret") return null;
  const command = renewCommand(asset);
  const title = renewTitle(asset);
  if (command === undefined) return <Unavailable title={title} reason={CREATE_IN_TENANT} />;
  const { renewal, status, source, type } = asset;
  if (renewal !== undefined && isRenewedAutomatically(asset))
    return (
      <Unavailable
        title={title}
        reason={`The certificate is renewed automatically (renewer: ${RENEWERS[renewal.renewedBy]}), so no action is needed. To renew it now, select Open in the Azure portal.`}
      />
    );
  const isMainAction = source === "keyVault" && type === "certificate" && status !== "healthy";
  return (
    <CommandDialog title={title} about={name} {...(isMainAction && { appearance: "primary" })}>
      <Text block>
        {source === "keyVault"
          ? "Run this command to create a new version. It needs permission to change the vault's objects. "
          : "Create a new certificate first, and install its private key where the application signs in. Then run this command with the file of the public certificate. It needs permission to change the application. "}
        The service can't run it. The next scan finds the new {source === "keyVault" ? "version" : "certificate"} and
        resolves the alerts.
      </Text>
      <Copyable label="Azure CLI" text={command} />
    </CommandDialog>
  );
}

/** Returns the title of the action that renews. The service does not change applications, so theirs only explains how. */
const renewTitle = ({ source }: Props["asset"]): string => (source === "keyVault" ? "Renew" : "How to renew");

const isRenewedAutomatically = ({ renewal, status }: Props["asset"]): boolean =>
  renewal !== undefined && renewal.renewedBy !== "none" && !renewal.late && status === "healthy";

/** Says how the two actions with a command differ. Empty if only one of them is available. */
export function CommandDifference({
  asset,
  violation,
}: Pick<Props, "asset"> & { violation: Schemas["Violation"] | undefined }) {
  const command = renewCommand(asset);
  if (asset.type === "secret" || command === undefined || isRenewedAutomatically(asset)) return null;
  const cli = violation?.remediation.cli ?? command;
  return (
    <Text size={200}>
      {renewTitle(asset)} explains and shows the command that creates a new{" "}
      {asset.source === "keyVault" ? "version" : "certificate in Microsoft Entra"}.{" "}
      {cli === command
        ? "Copy Azure CLI command copies the same command."
        : `Copy Azure CLI command copies another one, which ${purposeOf(violation)}.`}{" "}
      The service runs neither.
    </Text>
  );
}

/** Returns what the copied command does. */
const purposeOf = (violation: Schemas["Violation"] | undefined): string =>
  violation === undefined ? "renews this asset" : `fixes this: ${violation.title}`;

/** The action that assigns an owner, as a command: the owner is a tag in the vault, or an owner of the application. */
export function OwnerAction({ asset, name }: Props) {
  const title = ownerTitle(asset);
  if (asset.source === "keyVault" && !hasSafeTags(asset))
    return (
      <Unavailable
        title={title}
        reason="A tag of the asset contains characters that are not safe in a command. Add the owner tag in the Azure portal."
      />
    );
  // Only whether there is a command: the dialog creates the command with the real tag and owner.
  if (ownerCommand(asset, "owner", "") === undefined) return <Unavailable title={title} reason={whyNoOwner(asset)} />;
  return (
    <CommandDialog title={title} about={name}>
      <OwnerCommand asset={asset} />
    </CommandDialog>
  );
}

/** Returns the title of the action. An asset in a vault has one owner, an application can have several. */
function ownerTitle({ owner, source }: Props["asset"]): string {
  if (owner === null) return "Assign an owner";
  return source === "keyVault" ? "Change the owner" : "Assign a further owner";
}

/** Returns why the credential can't get an owner. */
const whyNoOwner = ({ credential }: Props["asset"]): string =>
  credential?.of === "servicePrincipal"
    ? "The credential belongs to a service principal. Assign an owner where the application is registered."
    : "Policy keys and identity providers have no owners. The administrators of the tenant are responsible.";

/** The content of the dialog: a field for the owner, and the command that assigns it. Rendered only while the dialog is open. */
function OwnerCommand({ asset }: Pick<Props, "asset">) {
  // The name comes from the vault or the directory, so a command must not contain it before it is checked.
  const [owner, setOwner] = useState(asset.owner && isSafeText(asset.owner) ? asset.owner : "");
  const owners = api.useQuery("get", "/alerts/owners", { params: { query: { limit: 1 } } });
  const ownerTag = owners.data?.ownerTag ?? "owner";
  const isInVault = asset.source === "keyVault";
  return (
    <>
      <Field
        label="Owner"
        hint={isInVault ? "Example: payments-team" : "Sign-in name of a user. Example: ann@contoso.com"}
      >
        <Input value={owner} onChange={(_, data) => setOwner(data.value)} autoComplete="off" />
      </Field>
      <Copyable label="Azure CLI" text={ownerCommand(asset, ownerTag, owner.trim()) ?? ""} />
      <Text block>
        {isInVault
          ? `The owner is the value of the tag ${ownerTag}. The command replaces the current owner and keeps the other tags. It needs permission to change the vault's objects.`
          : "The command adds an owner to those of the application. It needs permission to change the application."}{" "}
        The service only reads, so the next scan finds the new owner.
      </Text>
    </>
  );
}

/**
 * The action that copies the command that fixes the asset's most severe violation. Without a violation, the command that renews
 * the asset.
 */
export function CopyCommandAction({
  asset,
  violation,
}: Pick<Props, "asset"> & { violation: Schemas["Violation"] | undefined }) {
  const [copiedPurpose, setCopiedPurpose] = useState<string>();
  const title = "Copy Azure CLI command";
  const command = violation?.remediation.cli ?? renewCommand(asset);
  if (command === undefined)
    return <Unavailable title={title} reason="The Azure CLI has no command for this kind of credential." />;
  const purpose = purposeOf(violation);
  return (
    <>
      <Button
        size="small"
        {...(asset.source === "b2c" && { appearance: "primary" })}
        title={`The command ${purpose}.`}
        onClick={() => void navigator.clipboard.writeText(command).then(() => setCopiedPurpose(purpose))}
      >
        {title}
      </Button>
      <Text size={200} role="status">
        {copiedPurpose === undefined ? "" : `Copied. The command ${copiedPurpose}.`}
      </Text>
    </>
  );
}
