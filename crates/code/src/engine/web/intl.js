(function(){ return {Intl:{}, toLocaleString(){return String(this)}, toLocaleDateString(){return String(this)}, toLocaleTimeString(){return String(this)}} })
