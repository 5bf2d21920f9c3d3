// The search runs in a worker, which browsers do not start on a page that is opened from a disk. Run it in a frame there.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inner = this.frame.contentWindow
      const load = source => new Promise((done, failed) => {
        const script = inner.document.createElement("script")
        script.src = new URL(source, new URL(url, location))
        script.onload = done
        script.onerror = failed
        inner.document.body.append(script)
      })
      inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      inner.importScripts = (...urls) => Promise.all(urls.map(load))
      this.loaded = load(new URL(url, location))
    }

    async postMessage(data) {
      await this.loaded
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
