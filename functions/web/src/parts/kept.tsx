import { Button } from "@fluentui/react-components";
import { type ReactNode, useState } from "react";
import { usePerson } from "../api/access.ts";

/**
 * What goes on being told of without a licence. Most have nothing of it, and the API then refuses, so it is asked for only
 * when somebody wants to see it.
 */
export function Kept({ children }: { children: ReactNode }) {
  const { tier } = usePerson();
  const [isWanted, want] = useState(false);
  if (tier === "pro" || isWanted) return children;
  return (
    <div>
      <Button size="small" onClick={() => want(true)}>
        What began under a licence
      </Button>
    </div>
  );
}
