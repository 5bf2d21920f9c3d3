#!/usr/bin/env bash
# The Lightning client for Node.js subscribes again after a cut, and asks for too little: settled invoices are lost.
#
# Versions: lightning 11.1.0 with @grpc/grpc-js 1.14.5 (npm); Node.js 20 or newer, Linux. Version 12.5.0, which asks for
# Node.js 22, does the same. LND's SubscribeInvoices sends what is new; given a non-zero `settle_index`, it first sends
# all invoices with a greater one: "This allows callers to catch up on any events they missed while they weren't
# connected". `subscribeToInvoices` starts a cut stream again by itself, after 30 seconds by default, here after one,
# with indices that it has seen. A server that follows this protocol has the invoices 1 and 2. It sends that 1 is
# settled, then that 3 was added, and fails the stream with UNAVAILABLE, as when LND restarts. While the client is away,
# invoice 2 is settled. A second server sends its two events in the other order.
#
# Seen: the first server's program hears of 1 and 3, and never that invoice 2 was paid. The client takes both indices
# from the last event. An invoice that was just added has no `settle_index`, so the client forgets the 1 that it knew,
# and subscribes again without: it asks for new invoices only. A plain grpc-js call with that 1 gets the settled 2. With
# the other order the program hears of 2, but a second time of 3: the index of the settled invoice, 1, is lower than the
# one that the client knew. So whether a payment is lost depends on what happened last before the cut.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund --prefix "$folder" lightning@11.1.0 @grpc/grpc-js@1.14.5 \
  @grpc/proto-loader@0.8.1 >&2
openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 3 -subj /CN=localhost \
  -addext subjectAltName=DNS:localhost 2>/dev/null
cat > see.mjs <<'JAVASCRIPT'
import fs from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";
import lightning from "lightning";

const options = { defaults: true, keepCase: true, longs: Number };
const proto = protoLoader.loadSync("node_modules/lightning/grpc/protos/lightning.proto", options);
const { Lightning } = grpc.loadPackageDefinition(proto).lnrpc;
const pair = { private_key: fs.readFileSync("key.pem"), cert_chain: fs.readFileSync("cert.pem") };

/** A server that settles an invoice and adds another one, and cuts its subscriber off after the event that is named. */
class Node {
  asked = [];
  away = false;

  constructor(lastBeforeCut) {
    this.lastBeforeCut = lastBeforeCut;
    this.invoices = { 1: 0, 2: 0 }; // each invoice's add_index with its settle_index, zero until it is settled
  }

  message(index) {
    return {
      add_index: index,
      settle_index: this.invoices[index],
      state: this.invoices[index] ? "SETTLED" : "OPEN",
      creation_date: 1700000000,
      settle_date: this.invoices[index] ? 1700000001 : 0,
      expiry: 3600,
      r_hash: Buffer.alloc(32, Number(index)),
      payment_request: "lnbc1",
    };
  }

  settle(index) {
    this.invoices[index] = 1 + Math.max(...Object.values(this.invoices));
    return this.message(index);
  }

  add(index) {
    this.invoices[index] = 0;
    return this.message(index);
  }

  subscribe(call) {
    const { add_index: added, settle_index: settled } = call.request;
    this.asked.push([added, settled]);
    for (const [index, settle] of Object.entries(this.invoices)) {
      if (added && index > added) call.write(this.message(index));
      if (settled && settle > settled) call.write(this.message(index));
    }
    if (this.away) return;
    this.away = true;
    if (this.lastBeforeCut === "added") {
      call.write(this.settle(1));
      call.write(this.add(3));
    } else {
      call.write(this.add(3));
      call.write(this.settle(1));
    }
    setTimeout(() => {
      call.emit("error", { code: grpc.status.UNAVAILABLE, details: "restart" });
      this.settle(2);
    }, 300);
  }

  async start() {
    const server = new grpc.Server();
    server.addService(Lightning.service, { SubscribeInvoices: (call) => this.subscribe(call) });
    const credentials = grpc.ServerCredentials.createSsl(null, [pair]);
    return new Promise((resolve, reject) => {
      server.bindAsync("localhost:0", credentials, (error, port) => (error ? reject(error) : resolve(port)));
    });
  }
}

const event = (index, settled) => `${index} ${settled ? "settled" : "added"}`;

async function see(lastBeforeCut) {
  const node = new Node(lastBeforeCut);
  const socket = `localhost:${await node.start()}`;
  const cert = pair.cert_chain.toString("base64");
  const { lnd } = lightning.authenticatedLndGrpc({ cert, macaroon: "00", socket });
  const heard = [];
  const subscription = lightning.subscribeToInvoices({ lnd, restart_delay_ms: 1000 });
  subscription.on("invoice_updated", (invoice) => heard.push(event(invoice.index, invoice.confirmed_index)));
  subscription.on("error", () => {});
  for (let i = 0; i < 200 && node.asked.length < 2; i++) await sleep(100);
  await sleep(2000);
  const asked = [...node.asked];
  const plain = [];
  const client = new Lightning(socket, grpc.credentials.createSsl(pair.cert_chain));
  const call = client.SubscribeInvoices({ settle_index: 1 });
  call.on("data", (invoice) => plain.push(event(invoice.add_index, invoice.settle_index)));
  call.on("error", () => {});
  for (let i = 0; i < 50 && !plain.length; i++) await sleep(100);
  return { asked, heard, plain };
}

const [added, settled] = [await see("added"), await see("settled")];
console.log("cut after an added invoice:", JSON.stringify(added));
console.log("cut after a settled invoice:", JSON.stringify(settled));
const right =
  JSON.stringify(added.asked) === "[[0,0],[3,0]]" &&
  added.heard.join() === "1 settled,3 added" &&
  added.plain.join() === "2 settled" &&
  JSON.stringify(settled.asked) === "[[0,0],[1,1]]" &&
  settled.heard.includes("2 settled") &&
  settled.heard.filter((each) => each === "3 added").length === 2;
process.exit(right ? 0 : 1);
JAVASCRIPT
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 90 node see.mjs
