import {
  Button,
  Field,
  Input,
  Link,
  MessageBar,
  MessageBarBody,
  MessageBarTitle,
  Text,
} from "@fluentui/react-components";
import { type PublicKeyCredentialCreationOptionsJSON, startRegistration } from "@simplewebauthn/browser";
import { useQueryClient } from "@tanstack/react-query";
import { encodeQR } from "qr";
import { useState } from "react";
import { api, client, type Problem, type Schemas } from "../../api/client.ts";
import { ButtonRow } from "../../parts/button-row.tsx";
import { Copyable } from "../../parts/copyable.tsx";
import { SecretField, TextField } from "../../parts/fields.tsx";
import { fieldText } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { ProblemNotice } from "../../parts/problem-notice.tsx";
import { QueryResult } from "../../parts/query-result.tsx";
import { answerChallenge } from "../../shell/factor-form.tsx";

type SecondFactorState = Schemas["SecondFactor"];

/** The second factors of the signed-in user on the Access page, and the forms that add and remove them. */
export function SecondFactor() {
  const query = api.useQuery("get", "/auth/me/second-factor");
  return <QueryResult of={query}>{(state) => <Methods state={state} />}</QueryResult>;
}

function Methods({ state }: { state: SecondFactorState }) {
  const { enrolled, methods, recoveryCodesLeft, totpAvailable, passkeysAvailable } = state;
  return (
    <>
      {!enrolled && (
        <MessageBar intent="warning" layout="multiline">
          <MessageBarBody>
            <MessageBarTitle>No second factor.</MessageBarTitle> Your password alone is enough to sign in.
            {(totpAvailable || passkeysAvailable) && " Add one below."}
          </MessageBarBody>
        </MessageBar>
      )}
      {methods.map(({ id, name, createdAt, lastUsedAt }) => (
        <div key={id}>
          <Text weight="semibold">{name}</Text>, added <Instant at={createdAt} relative />
          {lastUsedAt !== null && (
            <>
              , last used <Instant at={lastUsedAt} relative />
            </>
          )}{" "}
          <Operate
            operation="removeSecondFactor"
            title="Remove"
            kind="second factor"
            about={name}
            action="Remove second factor"
            submit={async (form, remove) =>
              remove({ params: { path: { method_id: id } }, body: await proofOf(form, enrolled) })
            }
          >
            <Text>Sign-ins no longer accept this method. Without any method, your password is enough.</Text>
            <ProofFields enrolled={enrolled} />
          </Operate>
        </div>
      ))}
      <ButtonRow>
        {totpAvailable && (
          <Operate
            operation="startTotp"
            title="Add authenticator app"
            action="Show QR code"
            submit={async (form, start) => <ConfirmTotp {...(await start({ body: await proofOf(form, enrolled) }))} />}
          >
            <Text>An authenticator app on your phone shows a code that changes every 30 seconds.</Text>
            <ProofFields enrolled={enrolled} />
          </Operate>
        )}
        {passkeysAvailable && (
          <Operate
            operation="startPasskey"
            title="Add passkey"
            action="Create passkey"
            submit={async (form, start) => {
              const { options } = await start({ body: await proofOf(form, enrolled) });
              const optionsJSON = options as unknown as PublicKeyCredentialCreationOptionsJSON;
              const passkey = (await startRegistration({ optionsJSON })) as unknown as Schemas["PasskeyRegistration"];
              const body = { name: fieldText(form, "name"), passkey };
              const confirmed = await client.POST("/auth/me/second-factor/passkeys/confirm", { body });
              if (confirmed.error) throw confirmed.error;
              return <Codes codes={confirmed.data.recoveryCodes} />;
            }}
          >
            <Text>A passkey is stored in this device, a password manager or a security key.</Text>
            <TextField name="name" label="Name" hint="Example: Laptop" required />
            <ProofFields enrolled={enrolled} />
          </Operate>
        )}
        {enrolled && (
          <Operate
            operation="replaceRecoveryCodes"
            title="Replace recovery codes"
            action="Replace recovery codes"
            submit={async (form, replace) => (
              <Codes codes={(await replace({ body: await proofOf(form, enrolled) })).recoveryCodes} />
            )}
          >
            <Text>Creates ten new recovery codes. Your earlier codes stop working.</Text>
            <ProofFields enrolled={enrolled} />
          </Operate>
        )}
      </ButtonRow>
      {enrolled && <Text>Unused recovery codes: {recoveryCodesLeft}</Text>}
      {!totpAvailable && (
        <Text>Authenticator apps can't be added: the service has no key vault of its own (SERVICE_KEY_VAULT_URL).</Text>
      )}
      {!passkeysAvailable && (
        <Text>Passkeys can't be added: PUBLIC_BASE_URL is missing, or is not an https address with a host name.</Text>
      )}
    </>
  );
}

/** Fields that confirm a change: the password and, for a user who has one, a second factor. */
const ProofFields = ({ enrolled }: { enrolled: boolean }) => (
  <>
    <SecretField name="currentPassword" label="Current password" required />
    {enrolled && (
      <TextField
        name="totp"
        label="Code or recovery code"
        hint="Leave empty to confirm with a passkey."
        autoComplete="one-time-code"
      />
    )}
  </>
);

/**
 * Returns the confirmation in the form. Without a code, the browser asks for a passkey. A user without a code and without a passkey
 * sends only the password, which the API rejects with the reason.
 */
async function proofOf(form: FormData, enrolled: boolean): Promise<Schemas["IdentityProof"]> {
  const currentPassword = String(form.get("currentPassword") ?? "");
  const code = fieldText(form, "totp");
  if (!enrolled) return { currentPassword };
  // An authenticator app's code has six digits, which apps show with a space in the middle. A recovery code is longer.
  if (code !== "")
    return { currentPassword, ...(/^[\d\s]{6,7}$/.test(code) ? { totp: code } : { recoveryCode: code }) };
  const { data, error } = await client.POST("/auth/me/second-factor/challenge");
  if (error) throw error;
  const { passkeyOptions } = data;
  return passkeyOptions ? { currentPassword, passkey: await answerChallenge(passkeyOptions) } : { currentPassword };
}

/** The QR code of a new authenticator app, and the field for its first code. */
function ConfirmTotp({ secret, uri }: { secret: string; uri: string }) {
  const queries = useQueryClient();
  const [code, setCode] = useState("");
  const [problem, setProblem] = useState<Problem>();
  const [added, setAdded] = useState<{ recoveryCodes: string[] | null }>();

  async function confirm() {
    setProblem(undefined);
    const { data, error } = await client.POST("/auth/me/second-factor/totp/confirm", { body: { code } });
    setProblem(error);
    if (!data) return;
    setAdded(data);
    await queries.invalidateQueries({ queryKey: ["get", "/auth/me/second-factor"] });
  }

  if (added) return <Codes codes={added.recoveryCodes} />;
  return (
    <>
      <Text block>Scan the QR code with your app, or open the link on your phone. Then enter the code of the app.</Text>
      <QrCode text={uri} />
      <Link href={uri}>Open in an authenticator app</Link>
      <Copyable label="Secret, to type into the app" text={secret} />
      <Field label="Code">
        <Input
          name="code"
          autoComplete="one-time-code"
          inputMode="numeric"
          value={code}
          onChange={(_, data) => setCode(data.value)}
          onKeyDown={(event) => {
            if (event.key !== "Enter") return;
            // The dialog's own form was already sent.
            event.preventDefault();
            void confirm();
          }}
        />
      </Field>
      {problem && <ProblemNotice problem={problem} />}
      <Button type="button" appearance="primary" onClick={() => void confirm()}>
        Confirm code
      </Button>
    </>
  );
}

const Codes = ({ codes }: { codes: readonly string[] | null }) =>
  codes === null ? (
    "Added. Your recovery codes stay the same."
  ) : (
    <Copyable
      label="Save these recovery codes now: they are shown only once. Each works once."
      text={codes.join("\n")}
    />
  );

/** A QR code as SVG. The border of four modules is part of the standard (ISO/IEC 18004). */
function QrCode({ text }: { text: string }) {
  const modules = encodeQR(text, "raw", { border: 4 });
  const path = modules.flatMap((row, y) => row.map((isDark, x) => (isDark ? `M${x} ${y}h1v1h-1z` : ""))).join("");
  return (
    <svg
      role="img"
      aria-label="QR code of the secret"
      viewBox={`0 0 ${modules.length} ${modules.length}`}
      width="220"
      height="220"
      shapeRendering="crispEdges"
    >
      <rect width="100%" height="100%" fill="#fff" />
      <path d={path} fill="#000" />
    </svg>
  );
}
