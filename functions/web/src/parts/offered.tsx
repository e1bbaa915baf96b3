import { MessageBar, MessageBarBody, MessageBarTitle } from "@fluentui/react-components";
import type { ReactNode } from "react";
import { type Operation, usePerson, useRoleMay, whoMay } from "../api/access.ts";

interface Props {
  /** What is read or done in it. */
  operation: Operation;
  /** What there would be, in a sentence. */
  what: string;
  /** Says nothing to a role that may not, where the rest of the view says enough. */
  isQuiet?: boolean;
  children: ReactNode;
}

/** Shows what it holds to whom may call the operation, and otherwise what there would be and who or what opens it. */
export function Offered({ operation, what, isQuiet = false, children }: Props) {
  const { role, tier } = usePerson();
  const roleMay = useRoleMay();
  const { roles, tier: needed } = whoMay(operation);
  const isLicensed = needed === "core" || tier === "pro";
  if (isLicensed && roleMay(operation)) return children;
  if (isLicensed && isQuiet) return null;
  return (
    <MessageBar intent="info" layout="multiline">
      <MessageBarBody>
        <MessageBarTitle>{isLicensed ? "Not for your role" : "PRO"}</MessageBarTitle>
        {what}{" "}
        {isLicensed
          ? `Your role is ${role}; this is for ${roles.join(" and ")}.`
          : "This needs a PRO licence in the setting LICENSE_KEY."}
      </MessageBarBody>
    </MessageBar>
  );
}
